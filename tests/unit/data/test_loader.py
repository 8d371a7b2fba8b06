"""The same batches for any thread count and restart; errors come out with the sample's name, and never hang."""

import threading
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from lead_protocol.store.object_store import StoreUnavailable
from lead_trainer.data.loader import Loader
from lead_trainer.errors import BadData
from lead_trainer.recipes.recipe import Sample


class Numbers:
    """Samples that are their own index; `broken` raises."""

    def __init__(self, count: int, broken: int = -1, error: Exception | None = None) -> None:
        self.count, self.broken, self.error = count, broken, error or ValueError("bad pixel")
        self.loaded: list[int] = []

    def __len__(self) -> int:
        return self.count

    def epoch_draw(self, epoch: int) -> npt.NDArray[np.int64]:
        return np.arange(self.count)

    def name(self, index: int) -> str:
        return f"route {index}"

    def load(self, index: int, epoch: int) -> Sample:
        self.loaded.append(index)
        if index == self.broken:
            raise self.error
        return {"index": index, "epoch": epoch}


def loader(source: Numbers, **options: Any) -> Loader:
    values: dict[str, Any] = {"batch_size": 4, "seed": 3, "threads": 2, **options}
    return Loader(source, lambda samples: {"index": [s["index"] for s in samples]}, **values)


def indices(batches: Any) -> list[list[int]]:
    return [batch["index"] for batch in batches]


def test_thread_counts_do_not_change_the_batches() -> None:
    runs = [indices(loader(Numbers(30), threads=threads).batches(1)) for threads in (1, 2, 8)]
    assert runs[0] == runs[1] == runs[2]
    assert len(runs[0]) == 7 and len({i for batch in runs[0] for i in batch}) == 28


def test_resuming_at_any_step_gives_the_rest_and_loads_nothing_before() -> None:
    whole = indices(loader(Numbers(30)).batches(0))
    for step in range(8):
        source = Numbers(30)
        assert indices(loader(source).batches(0, step)) == whole[step:]
        assert set(source.loaded) == {i for batch in whole[step:] for i in batch}


def test_two_ranks_together_see_the_batches_of_one() -> None:
    alone = indices(loader(Numbers(30)).batches(2))
    ranks = [indices(loader(Numbers(30), rank=rank, world_size=2).batches(2)) for rank in (0, 1)]
    for one, first, second in zip(alone, *ranks, strict=True):
        assert sorted(first + second) == sorted(one)


def test_a_failing_sample_is_named_at_its_place() -> None:
    whole = indices(loader(Numbers(30)).batches(0))
    broken = whole[3][1]
    batches = loader(Numbers(30, broken)).batches(0)
    assert [next(batches)["index"] for _ in range(3)] == whole[:3]
    with pytest.raises(BadData, match=rf"sample {broken} \(route {broken}\): ValueError: bad pixel"):
        next(batches)


def test_a_store_that_went_away_keeps_its_class() -> None:
    with pytest.raises(StoreUnavailable):
        list(loader(Numbers(8, 2, StoreUnavailable("no answer"))).batches(0))


def test_closing_the_iterator_ends_the_threads() -> None:
    before = set(threading.enumerate())
    batches = loader(Numbers(1000), threads=4).batches(0)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert {t for t in threading.enumerate() if t.name.startswith("lead-data")} <= before


def test_no_more_is_loaded_ahead_than_asked_for() -> None:
    source = Numbers(1000)
    batches = loader(source, batches_ahead=2).batches(0)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert len(source.loaded) <= 4 + 2 * 4


def test_fewer_samples_than_a_batch_is_an_error_not_an_empty_epoch() -> None:
    with pytest.raises(BadData, match="fewer than one batch"):
        loader(Numbers(3)).steps_per_epoch(0)


def test_a_source_that_replays_its_first_order_gets_it() -> None:
    class Replaying(Numbers):
        def order_epoch(self, epoch: int) -> int:
            return 0

    assert indices(loader(Replaying(30)).batches(5)) == indices(loader(Numbers(30)).batches(0))
