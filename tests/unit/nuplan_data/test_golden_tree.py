"""What is read of the reference tree is what nuplan-devkit, OpenCV and shapely say of it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lead_testing import shared_dir
from lead_testing.golden import nuplan as ours
from lead_trainer.recipes.nuplan.lenses import projected, resized_intrinsic, straightened, undistorted_points

TOLERANCE = {"rel": 1e-6, "abs": 1e-6}


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Returns every leaf of a document by its path."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return {name: leaf for key, inner in items for name, leaf in leaves(inner, f"{path}/{key}").items()}
    return {path: value}


def test_n_03_n_04_and_n_11_every_number_is_that_of_the_devkit(golden: Path) -> None:
    expected = leaves(json.loads((shared_dir() / "golden/nuplan/expected.json").read_text()))
    found = leaves(ours.numbers(str(golden)))
    assert expected.keys() - found.keys() == set()
    numbers = {path: value for path, value in expected.items() if type(value) in (int, float)}
    assert {path: found[path] for path in expected.keys() - numbers.keys()} == {
        path: expected[path] for path in expected.keys() - numbers.keys()
    }
    assert [found[path] for path in numbers] == pytest.approx(list(numbers.values()), **TOLERANCE)
    assert len(expected) > 30_000


def test_n_15_every_cell_is_that_of_shapely_but_those_at_an_edge(golden: Path) -> None:
    found = ours.grids(str(golden))
    with np.load(shared_dir() / "golden/nuplan/expected_grids.npz") as expected:
        names = [name for name in expected.files if not name.endswith("|doubtful")]
        assert len(names) == 44 * 6 and set(names) <= found.keys()
        for name in names:
            clear = np.unpackbits(expected[f"{name}|doubtful"])[:40000] == 0
            differ = np.unpackbits(expected[name])[:40000] != np.unpackbits(found[name])[:40000]
            assert not (differ & clear).any(), name


def test_n_11_lenses_are_opencvs_and_straightened_pictures_fit_their_intrinsics() -> None:
    with np.load(shared_dir() / "golden/nuplan/bev.npz") as arrays:
        points, uv, straight, k, d = (arrays[f"lenses|{name}"] for name in ("points", "uv", "undistorted_uv", "k", "d"))
    assert projected(points, k, d) == pytest.approx(uv, abs=1e-9)
    assert undistorted_points(uv, k, d) == pytest.approx(straight, abs=1e-6)
    assert undistorted_points(uv, k, np.zeros(5)) == pytest.approx(uv, abs=1e-9)
    # A bright dot, seen through the lens, lies in the straightened and resized picture where its intrinsics put it.
    dot, size = uv[len(uv) // 2], (90, 160)
    rows, columns = np.mgrid[0:108, 0:192]
    bright = 255 * np.exp(-((columns - dot[0]) ** 2 + (rows - dot[1]) ** 2) / 18)
    seen = straightened(np.repeat(bright[..., None], 3, axis=2).astype(np.uint8), k, d, size)[..., 0].astype(float)
    rows, columns = np.mgrid[0 : size[0], 0 : size[1]]
    centre = np.array([(columns * seen).sum(), (rows * seen).sum()]) / seen.sum()
    scaled = resized_intrinsic(k, (108, 192), size)
    wanted = (straight[len(uv) // 2] - k[:2, 2]) / np.diag(k)[:2] * np.diag(scaled)[:2] + scaled[:2, 2]
    assert centre == pytest.approx(wanted, abs=0.25)


def test_n_10_intrinsics_are_scaled_like_the_pictures() -> None:
    k = np.array([[1545.0, 0.0, 960.0], [0.0, 1545.0, 560.0], [0.0, 0.0, 1.0]])
    for height, width in ((540, 960), (384, 640)):
        scaled = resized_intrinsic(k, (1080, 1920), (height, width))
        right, down = width / 1920, height / 1080
        assert scaled[0, 0] == 1545 * right and scaled[1, 1] == 1545 * down
        # Corners of a picture lie half a pixel outside of the middle of its corner pixels.
        assert scaled[:2, 2] + 0.5 == pytest.approx([(960 + 0.5) * right, (560 + 0.5) * down])
