"""Worker processes deliver what threads deliver, and die loudly."""

import multiprocessing
import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from lead_protocol.exit_codes import ExitCode
from lead_protocol.store.object_store import StoreDenied, StoreUnavailable
from lead_trainer.contract.samples import Sample, Samples
from lead_trainer.data import shared_counters
from lead_trainer.data.loader import Loader, LoaderLimits
from lead_trainer.data.process_loader import ProcessLoader, loader_named
from lead_trainer.data.session_cache import CacheStats, Counters
from lead_trainer.errors import BadConfig, BadData, StuckLoader, TrainerError, exit_code_of
from lead_trainer.recipes.lead.dataset_collate import collate

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")


class Squares(Samples):
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


class NeedsTwo(BadData):
    """An error that pickles, but not back."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"{what} {where}")


class Raising(Squares):
    """Samples of which one raises what is given."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def load(self, index: int, epoch: int) -> Sample:
        if index == 7:
            raise self._error
        return super().load(index, epoch)


def errors_that_do_not_pickle() -> list[Exception]:
    """Errors of libraries and recipes, of which a queue can carry neither value nor class to the parent process."""

    class Local(ValueError):
        pass

    class TwoWords(BadData):
        exit_code = ExitCode.BAD_CONFIG

        def __init__(self, what: str, where: str) -> None:
            super().__init__(f"{what} {where}")
            self.lock = threading.Lock()

    class LocalDenied(StoreDenied):
        pass

    class NoMemory(MemoryError):
        pass

    holding = RuntimeError("no root", threading.Lock())
    return [
        holding,
        NeedsTwo("no", "root"),
        Local("no root"),
        TwoWords("no", "root"),
        LocalDenied("no root"),
        NoMemory("no root"),
    ]


@pytest.mark.parametrize("kind", [Loader, ProcessLoader])
@pytest.mark.parametrize("error", errors_that_do_not_pickle(), ids=lambda error: type(error).__name__)
def test_an_error_that_does_not_pickle_is_told_within_seconds(kind: type[Loader], error: Exception) -> None:
    loader = kind(Raising(error), collate, batch_size=4, seed=3, threads=2, limits=LoaderLimits(stuck_after_s=30))
    with pytest.raises(Exception, match=r"no.*root") as caught:
        list(loader.batches(0))
    kept = isinstance(error, (TrainerError, StoreDenied, MemoryError))
    assert exit_code_of(caught.value) == exit_code_of(error if kept else BadData())
    told = [str(caught.value), *getattr(caught.value, "__notes__", [])]
    assert isinstance(error, StoreDenied) or "sample 7 (square 7)" in " ".join(told)  # a store's error names its object


@pytest.mark.parametrize("error", errors_that_do_not_pickle(), ids=lambda error: type(error).__name__)
def test_an_error_of_collate_that_does_not_pickle_is_told_within_seconds(error: Exception) -> None:
    def failing(samples: Any) -> Any:
        raise error

    loader = ProcessLoader(Squares(), failing, batch_size=4, seed=3, threads=2, limits=LoaderLimits(stuck_after_s=30))
    with pytest.raises(Exception, match=r"no.*root") as caught:
        list(loader.batches(0))
    assert exit_code_of(caught.value) == exit_code_of(error)


def test_a_killed_process_is_an_error_within_seconds_and_never_a_hang() -> None:
    loader = ProcessLoader(
        Squares(deadly=7), collate, batch_size=4, seed=3, threads=2, limits=LoaderLimits(stuck_after_s=30)
    )
    with pytest.raises(StuckLoader, match="killed for memory"):
        list(loader.batches(0))


@pytest.mark.parametrize("samples", [Squares(deadly=7), Squares(wrong=7), Raising(NeedsTwo("no", "root"))])
def test_an_error_leaves_no_process_behind_even_while_it_is_held(samples: Squares) -> None:
    loader = ProcessLoader(samples, collate, batch_size=4, seed=3, threads=2, limits=LoaderLimits(stuck_after_s=30))
    before = set(multiprocessing.active_children())
    with pytest.raises(TrainerError) as held:
        list(loader.batches(0))
    assert set(multiprocessing.active_children()) <= before
    assert held.value.__traceback__ is not None


class AwayOnce(Squares):
    """Samples of a store that is away at first; it knows by files, which all processes see."""

    def __init__(self, folder: Path, *, forever: bool = False) -> None:
        super().__init__()
        self._folder, self._forever = folder, forever

    def load(self, index: int, epoch: int) -> Sample:
        seen = self._folder / str(index)
        if index in (3, 8) and (self._forever or not seen.exists()):
            seen.touch()
            raise StoreUnavailable(f"object {index} did not come")
        return super().load(index, epoch)


def test_a_store_that_is_away_is_waited_for_by_processes_too(tmp_path: Path) -> None:
    loader = ProcessLoader(AwayOnce(tmp_path), collate, batch_size=4, seed=3, threads=2)
    indices = [int(index) for batch in loader.batches(0) for index in batch["index"]]
    assert sorted(indices) == list(range(40)) and (tmp_path / "3").exists()


def test_what_processes_spend_on_each_stage_is_counted(tmp_path: Path) -> None:
    loader = ProcessLoader(AwayOnce(tmp_path), collate, batch_size=4, seed=3, threads=2)
    assert len(list(loader.batches(0))) == 10
    stats, told = loader.stats(), loader.stage_scalars()
    assert stats.batches == 10 and stats.load_s > 0 and stats.copy_s > 0 and stats.outage_s >= 0.5
    assert told["data/load_ms"] == pytest.approx(100 * stats.load_s) and told["data/outage_ms"] >= 50


def test_a_store_that_stays_away_ends_both_loaders_with_one_error(tmp_path: Path) -> None:
    for kind in (Loader, ProcessLoader):
        loader = kind(
            AwayOnce(tmp_path, forever=True), collate, batch_size=4, seed=3, threads=2,
            limits=LoaderLimits(store_outage_s=0.1),
        )  # fmt: skip
        with pytest.raises(StoreUnavailable, match=r"^object (3|8) did not come$"):
            list(loader.batches(0))


def test_an_error_of_a_process_reads_as_an_error_of_a_thread() -> None:
    def text(kind: type[Loader]) -> str:
        with pytest.raises(BadData) as caught:
            list(kind(Squares(wrong=7), collate, batch_size=4, seed=3, threads=2).batches(0))
        return str(caught.value)

    assert text(Loader) == text(ProcessLoader)
    assert re.fullmatch(
        r"sample 7 \(square 7\): ValueError: no root \(.*test_process_loader\.py, line \d+\)", text(Loader)
    )


def test_what_processes_read_is_counted_and_a_killed_one_frees_the_lock() -> None:
    counters = Counters()
    for _ in range(3):
        if (child := os.fork()) == 0:
            try:
                for _ in range(1000):
                    counters.handed_out(first=True)
                    counters.add(fetched_bytes=7)
                os.kill(os.getpid(), signal.SIGKILL)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    if (holder := os.fork()) == 0:
        try:
            with counters._shared._locked():
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(holder, 0)[1]) == -signal.SIGKILL
    counters.add(fetched=1)
    counters.degrade()
    assert counters.read() == CacheStats(3000, 3000, 1, 21000, degraded=True)
    assert (counters.read().hits, counters.read().misses) == (2999, 1)


def test_more_processes_than_rows_lose_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_counters, "PROCESSES", 2)
    counters = shared_counters.SharedCounters(["calls", "seconds"])
    for _ in range(2):  # the second five go on with rows of the first
        children = [os.fork() or _counted(counters) for _ in range(5)]
        for child in children:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    counters.add({"calls": 1})
    assert counters.read() == {"calls": 10_001, "seconds": 5_000}


def _counted(counters: shared_counters.SharedCounters) -> int:
    code = 1
    try:
        for _ in range(1000):
            counters.add({"calls": 1, "seconds": 0.5})
        code = 0
    finally:
        os._exit(code)


@pytest.mark.parametrize("name, kind", [("ring", Loader), ("process", ProcessLoader)])
def test_a_stage_names_its_loader(name: str, kind: type[Loader]) -> None:
    assert loader_named(name) is kind


def test_an_unknown_loader_is_a_config_error() -> None:
    with pytest.raises(BadConfig, match="loader: found 'dali', expected one of ring, process"):
        loader_named("dali")
