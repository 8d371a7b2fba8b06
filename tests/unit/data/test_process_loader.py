"""Worker processes deliver what threads deliver, and die loudly."""

import os
import signal
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from lead_trainer.data.loader import Loader, LoaderLimits
from lead_trainer.data.process_loader import ProcessLoader
from lead_trainer.errors import BadData, StuckLoader
from lead_trainer.recipes.lead.dataset_collate import collate
from lead_trainer.recipes.recipe import Sample

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")


class Squares:
    """Samples that know their epoch; one may be deadly, one wrong."""

    def __init__(self, *, deadly: int = -1, wrong: int = -1) -> None:
        self.deadly, self.wrong = deadly, wrong

    def __len__(self) -> int:
        return 40

    def epoch_draw(self, epoch: int) -> npt.NDArray[np.int64]:
        return np.arange(40)

    def name(self, index: int) -> str:
        return f"square {index}"

    def load(self, index: int, epoch: int) -> Sample:
        if index == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        if index == self.wrong:
            raise ValueError("no root")
        return {"index": index, "epoch": epoch, "square": np.full(3, index**2, np.int64), "text": str(index)}


def both(source: Squares, epoch: int, start: int = 0, **options: Any) -> tuple[list[Any], list[Any]]:
    values = {"batch_size": 4, "seed": 3, "threads": 2, **options}
    return tuple(list(kind(source, collate, **values).batches(epoch, start)) for kind in (Loader, ProcessLoader))  # type: ignore[return-value]


@pytest.mark.parametrize("epoch, start", [(0, 0), (2, 7)])
def test_processes_deliver_what_threads_deliver(epoch: int, start: int) -> None:
    by_threads, by_processes = both(Squares(), epoch, start)
    assert len(by_threads) == 10 - start
    for first, second in zip(by_threads, by_processes, strict=True):
        assert list(first) == list(second) and first["text"] == second["text"]
        assert all(torch.equal(first[key], second[key]) for key in ("index", "epoch", "square"))
        assert set(second["epoch"].tolist()) == {epoch}


def test_a_failing_sample_is_named() -> None:
    loader = ProcessLoader(Squares(wrong=7), collate, batch_size=4, seed=3, threads=2)
    with pytest.raises(BadData, match=r"sample 7 \(square 7\): ValueError: no root"):
        list(loader.batches(0))


def test_a_killed_process_is_an_error_within_seconds_and_never_a_hang() -> None:
    loader = ProcessLoader(
        Squares(deadly=7), collate, batch_size=4, seed=3, threads=2, limits=LoaderLimits(stuck_after_s=30)
    )
    with pytest.raises(StuckLoader, match="killed for memory"):
        list(loader.batches(0))
