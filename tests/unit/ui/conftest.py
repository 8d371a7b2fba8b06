"""Runs that the toy recipe has trained by `lead train`, once for all tests of the page, and a client of it."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

from lead_protocol.exit_codes import ExitCode
from lead_testing.toy_runs import toy_recipe_installed
from lead_trainer.cli import main
from lead_trainer.report.tensorboard import EventFile
from lead_ui.local_runs import LocalRuns
from lead_ui.web.access import OpenAccess
from lead_ui.web.app import create_app


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with five runs: plain, with pictures, resumed, of three seeds, with another learning rate."""
    root = tmp_path_factory.mktemp("shown")
    with toy_recipe_installed(root / "site"):
        for name, *words in (
            ("plain", "epochs=3", "validation_samples=16"),
            ("drawn", "epochs=1", "tensorboard=false"),
            ("resumed", "epochs=1", "lr=0.02"),
            ("resumed", "epochs=2", "lr=0.02"),
            ("seeds", "epochs=2", "seeds=[0,1,2]"),
            ("deep/fast", "epochs=2", "lr=0.2"),
        ):
            logdir = root / "runs" / name
            assert main(["train", "recipe=toy", f"logdir={logdir}", *words]) == ExitCode.DONE
    # The toy recipe draws nothing: pictures are written as the trainer's recipes write them, into a file of the run.
    events = EventFile(root / "runs/drawn", None, "", attempt=1, first_step=0, on=True)
    for step in (5, 10, 15):
        events.picture("prediction", np.full((4, 6, 3), step, np.uint8), step)
        events.clip("val/clip", np.zeros((2, 4, 6, 3), np.uint8), step)
    events.close()
    return root / "runs"


@pytest.fixture
def client(runs: Path) -> Iterator[TestClient]:
    """A client of the page over the runs, as `lead ui` serves it."""
    with client_of(runs) as found:
        yield found


def client_of(folder: Path) -> TestClient:
    """Returns a client of the page over a folder."""
    os.environ.pop("LEAD_STORE_URL", None)
    return TestClient(create_app(LocalRuns(folder), OpenAccess(), ["testserver"]))
