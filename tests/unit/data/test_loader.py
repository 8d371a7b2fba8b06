"""The same batches for any thread count and restart; errors come out with the sample's name, and never hang."""

import errno
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from lead_protocol.exit_codes import ExitCode
from lead_protocol.store.object_store import StoreUnavailable
from lead_trainer.contract.samples import Batch, Sample, Samples
from lead_trainer.data.batch_slots import Slot
from lead_trainer.data.loader import Loader, LoaderLimits
from lead_trainer.errors import BadData, StuckLoader, exit_code_of
from lead_trainer.recipes.lead.dataset_collate import collate


class Numbers(Samples):
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


@pytest.mark.parametrize(
    "error",
    [MemoryError(), OSError(errno.EMFILE, "Too many open files"), OSError(errno.EIO, "Input/output error", "/data/a")],
    ids=["memory", "files", "device"],
)
def test_a_fault_of_the_machine_while_a_sample_loads_is_no_bad_data(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        list(loader(Numbers(8, 2, error)).batches(0))
    assert caught.value is error and exit_code_of(error) == ExitCode.PROGRAM_ERROR
    assert caught.value.__notes__ == ["while loading sample 2 (route 2)"]


def test_a_file_that_a_sample_lacks_is_bad_data() -> None:
    with pytest.raises(BadData, match=r"sample 2 \(route 2\): FileNotFoundError: .*labels.npz"):
        list(loader(Numbers(8, 2, FileNotFoundError(errno.ENOENT, "No such file", "labels.npz"))).batches(0))


def test_a_fault_of_the_memory_of_batches_is_no_bad_data(monkeypatch: pytest.MonkeyPatch) -> None:
    def put(*_: object) -> None:
        raise RuntimeError("CUDA error: uncorrectable ECC error")

    monkeypatch.setattr(Slot, "put", put)
    with pytest.raises(RuntimeError, match=r"^CUDA error"):
        list(loader(Numbers(8)).batches(0))


def test_a_store_that_stays_away_keeps_its_class() -> None:
    source = Numbers(8, 2, StoreUnavailable("no answer"))
    with pytest.raises(StoreUnavailable):
        list(loader(source, limits=LoaderLimits(store_outage_s=0.0)).batches(0))


def test_a_store_that_comes_back_costs_time_and_nothing_else() -> None:
    whole = indices(loader(Numbers(8)).batches(0))
    recovering = loader(ComesBack(8, 2, StoreUnavailable("no answer")))
    assert indices(recovering.batches(0)) == whole and recovering.stats().outage_s > 0


class ComesBack(Numbers):
    """Its broken sample is whole the second time it is asked for."""

    def load(self, index: int, epoch: int) -> Sample:
        try:
            return super().load(index, epoch)
        finally:
            self.broken = -1 if index == self.broken else self.broken


class Blocking(Numbers):
    """Holds sample 5 back until it is released."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.release = threading.Event()

    def load(self, index: int, epoch: int) -> Sample:
        if index == 5:
            self.release.wait()
        return super().load(index, epoch)


def test_a_blocked_sample_is_reported_with_name_and_place_and_never_hangs() -> None:
    source = Blocking(8)
    with pytest.raises(StuckLoader, match=r"sample 5 \(route 5\) has been loading .* .at wait, .*threading.py"):
        list(loader(source, limits=LoaderLimits(stuck_after_s=2.0)).batches(0))
    source.release.set()


def test_a_sample_that_is_stuck_beside_one_the_store_did_not_give_is_an_error_of_the_store() -> None:
    source = Blocking(8, 2, StoreUnavailable("no answer"))
    limits = LoaderLimits(stuck_after_s=2.0, store_outage_s=0.0)
    with pytest.raises(StoreUnavailable, match="no answer"):
        list(loader(source, batch_size=8, limits=limits).batches(0))
    source.release.set()


def test_a_thread_that_is_told_to_exit_ends_the_epoch_with_that() -> None:
    class Leaving(Numbers):
        def load(self, index: int, epoch: int) -> Sample:
            raise SystemExit(3)

    with pytest.raises(SystemExit):
        list(loader(Leaving(8)).batches(0))


class Pictures(Numbers):
    """Arrays, numbers, a text, and now and then a key or a shape that the others lack."""

    def load(self, index: int, epoch: int) -> Sample:
        sample: Sample = {
            "picture": np.full((4, 3), index % 256, np.uint8).T,
            "index": index,
            "speed": np.float32(index / 7),
            "flag": index % 2 == 0,
            "place": f"town {index}",
            "points": np.arange(2.0) if index % 5 else np.arange(2),  # another type now and then
        }
        return sample | ({"rare": np.ones(2, np.float32)} if index % 3 == 0 else {})


def stacked(samples: Sequence[Sample]) -> Batch:
    return collate(samples)


def same(first: Batch, second: Batch) -> bool:
    assert list(first) == list(second)
    return all(
        a == b if isinstance(a, list) else (a.dtype == b.dtype and torch.equal(a, b))
        for a, b in zip(first.values(), second.values(), strict=True)
    )


@pytest.mark.parametrize("threads", [1, 3])
def test_slots_hold_what_collate_would_have_made(threads: int) -> None:
    source = Pictures(60)
    ring = Loader(source, stacked, batch_size=4, seed=3, threads=threads)
    for indices_of, batch in zip(ring.sample_indices(0), ring.batches(0), strict=True):
        assert same(batch, collate([source.load(int(index), 0) for index in indices_of]))


def test_what_collate_changes_stays_its_own() -> None:
    def changing(samples: Sequence[Sample]) -> Batch:
        batch = collate(samples)
        return {**batch, "speed": batch["speed"] * 2, "count": len(samples)}

    def halving(samples: Sequence[Sample]) -> Batch:
        batch = collate(samples)
        return {**batch, "speed": batch["speed"] / 2}

    source = Pictures(24)
    for own in (changing, halving):
        ring = Loader(source, own, batch_size=4, seed=3, threads=2)
        for of, batch in zip(ring.sample_indices(0), ring.batches(0), strict=True):
            expected = own([source.load(int(index), 0) for index in of])
            assert batch.pop("count", 4) == expected.pop("count", 4) and same(batch, expected)


def test_a_collate_that_reads_another_key_for_one_of_its_own_sees_whole_samples() -> None:
    def measuring(samples: Sequence[Sample]) -> Batch:
        sizes = [sample.get("picture").shape[0] for sample in samples]  # type: ignore[union-attr]
        return {
            **collate(samples),
            "place": [f"{s.get('place')} {size}" for s, size in zip(samples, sizes, strict=True)],
        }

    source = Pictures(24)
    ring = Loader(source, measuring, batch_size=4, seed=3, threads=2)
    for of, batch in zip(ring.sample_indices(0), ring.batches(0), strict=True):
        assert same(batch, measuring([source.load(int(index), 0) for index in of]))


def test_what_is_wrong_with_a_collate_is_raised() -> None:
    batches = iter([False, True])

    def failing_later(samples: Sequence[Sample]) -> Batch:
        if len(samples[0]) > 5 and next(batches, True):
            raise KeyError("a key that no sample has")
        return collate(samples)

    with pytest.raises(KeyError, match="a key that no sample has"):
        list(Loader(Pictures(24), failing_later, batch_size=4, seed=3, threads=1).batches(0))


def test_memory_is_used_again_and_a_batch_somebody_keeps_is_not_overwritten() -> None:
    source = Pictures(400)
    dropping = Loader(source, stacked, batch_size=4, seed=3, batches_ahead=2)
    addresses = {batch["picture"].data_ptr() for batch in dropping.batches(0)}
    assert len(addresses) <= 4 + 1  # the ring, and the first batch that collate made
    keeping = Loader(source, stacked, batch_size=4, seed=3, batches_ahead=2)
    kept = [batch["picture"][0] for batch in keeping.batches(0)]  # a view holds the whole slot
    firsts = [int(of[0]) for of in keeping.sample_indices(0)]
    assert [int(picture[0, 0]) for picture in kept] == [index % 256 for index in firsts]


def test_the_recipes_hook_finishes_each_batch() -> None:
    ring = Loader(Pictures(8), stacked, batch_size=4, seed=3, on_device=lambda batch: {"twice": batch["index"] * 2})
    for of, batch in zip(ring.sample_indices(0), ring.batches(0), strict=True):
        assert batch["twice"].tolist() == [2 * int(index) for index in of]


def test_batches_of_like_length_hold_each_sample_once_and_resume_anywhere() -> None:
    class Sequences(Numbers):
        def group_lengths(self) -> npt.NDArray[np.int64]:
            return np.arange(self.count) % 10

    source = Sequences(200)
    whole = indices(loader(source).batches(0))
    assert sorted(index for batch in whole for index in batch) == list(range(200))
    assert all(len({index % 10 for index in batch}) <= 2 for batch in whole)
    assert whole != indices(loader(source).batches(1))
    assert indices(loader(source).batches(0, 17)) == whole[17:]
    halves = [indices(loader(source, rank=rank, world_size=2).batches(0)) for rank in (0, 1)]
    assert [sorted(a + b) for a, b in zip(*halves, strict=True)] == [sorted(batch) for batch in whole]


def test_waits_are_counted_by_stage() -> None:
    ring = Loader(Pictures(40), stacked, batch_size=4, seed=3)
    list(ring.batches(0))
    stats = ring.stats()
    told = ring.stage_scalars()
    assert told["data/load_ms"] == pytest.approx(1000 * stats.load_s / 10) and ring.stage_scalars() == {}
    assert stats.batches == 10 and stats.load_s > 0 and stats.copy_s > 0 and 0 < stats.longest_wait_s <= stats.wait_s


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
