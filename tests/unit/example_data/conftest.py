"""One small example tree for all tests of this folder, and the frame reader they share."""

import functools
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import laspy
import numpy as np
import pytest

from lead_trainer.example_worlds.lead import write_example_tree
from lead_trainer.recipes.lead.ingest.plain_pickle import read_plain

ROUTES, FRAMES = 4, 7


@dataclass(frozen=True)
class Frame:
    """One saved frame of one route, decoded on demand."""

    route: Path
    number: int

    def path(self, folder: str) -> Path:
        return next((self.route / folder).glob(f"{self.number:04d}.*"))

    @functools.cached_property
    def meta(self) -> dict[str, Any]:
        result: dict[str, Any] = read_plain(self.path("metas").read_bytes(), "metas")
        return result

    @functools.cached_property
    def boxes(self) -> list[dict[str, Any]]:
        result: list[dict[str, Any]] = read_plain(self.path("bboxes").read_bytes(), "bboxes")
        return result

    def image(self, folder: str) -> np.ndarray:
        return np.asarray(cv2.imread(str(self.path(folder)), cv2.IMREAD_UNCHANGED))

    def lidar(self) -> laspy.LasData:
        return laspy.read(io.BytesIO(self.path("lidar").read_bytes()))


def frames_below(root: Path) -> list[Frame]:
    return [
        Frame(route, n)
        for route in sorted(root.glob("data/*/*"))
        for n in range(len(list((route / "metas").iterdir())))
    ]


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("example") / "carla_leaderboard2"
    write_example_tree(root, routes=ROUTES, frames=FRAMES, seed=3, failed_routes=1)
    return root


@pytest.fixture(scope="session")
def frames(tree: Path) -> list[Frame]:
    return frames_below(tree)
