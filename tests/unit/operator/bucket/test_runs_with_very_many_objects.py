"""A run whose checkpoints or event files are more than one LIST may hold is seen none the less, or is told of."""

import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lead_operator.bucket.bucket_snapshot import BucketSnapshot, ReadLimits
from lead_operator.bucket.bucket_view import BucketView
from lead_operator.bucket.instance_records import MAX_PROGRESS_RECORDS, read_instances, record_prefixes
from lead_operator.bucket.record_reader import MAX_LISTED_BYTES, RecordReader, Records
from lead_operator.decisions.plan import RunRecord
from lead_protocol.object_keys import InstanceKeys, RunKeys
from lead_protocol.progress_record import ProgressRecord
from lead_protocol.run_records import RunEnd
from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import ObjectInfo
from lead_testing.makers import RUN_UID, SETTINGS

MOST = 20
KEYS = InstanceKeys("team-a", RUN_UID, "train", 0)
RUN, CONTROL = f"runs/team-a/{RUN_UID}/", f"control/team-a/{RUN_UID}/"
PROGRESS = ProgressRecord(attempt=1, seq=3, phase="Training", epoch=1, epochs=2, step=10, steps=20)


class Counting(FolderStore):
    """A store that remembers what was listed."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.listed: Any = []

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Lists, and remembers it."""
        self.listed.append(prefix)
        return super().list(prefix, start_after=start_after)


class LongKeys(FolderStore):
    """A store with many objects below each prefix, with keys about as long as S3 takes them."""

    def __init__(self, root: Path, count: int) -> None:
        super().__init__(root)
        self.count = count

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Lists what somebody has put there."""
        for number in range(self.count):
            yield ObjectInfo(f"{prefix}{number:05d}{'k' * 800}\U0001f697", number, f"{number:032x}")


@pytest.fixture
def store(tmp_path: Path) -> Counting:
    store = Counting(tmp_path)
    store.put(KEYS.attempt(1), b"{}")
    store.put(KEYS.progress(1), PROGRESS.model_dump_json().encode())
    return store


def a_view(store: FolderStore, now: Callable[[], float] = time.monotonic) -> BucketView:
    return BucketView(SETTINGS, lambda profile: store, limits=ReadLimits(objects=MOST), now=now)


def add_checkpoints(store: FolderStore) -> None:
    for step in range(MOST):
        store.put(f"{KEYS.checkpoint(step, 1, 'abc')}model.pth", b"x")


async def look(view: BucketView, *live: str, max_age_s: float = 0.0) -> BucketSnapshot:
    profile, instances = SETTINGS.storage_profiles["default"], ((KEYS.stage, KEYS.seed),)
    return await view.read_run(profile, KEYS.namespace, KEYS.uid, instances, live=frozenset(live), max_age_s=max_age_s)


async def test_a_pod_that_is_gone_is_asked_for_its_last_report_though_nobody_saw_it_end(store: Counting) -> None:
    view = a_view(store)
    looks = []
    for live in (("a", "b"), ("a", "b"), ("a", "b", "c"), ("b", "c"), ("b", "c"), ()):
        await look(view, *live, max_age_s=3600.0)
        looks.append(store.listed.count(RUN))
    assert looks == [1, 1, 1, 2, 2, 3]


async def test_a_usual_run_costs_one_list_of_its_folder(store: Counting) -> None:
    view = a_view(store)
    for _ in range(3):
        assert (await look(view)).instances[0].progress == PROGRESS
    assert store.listed == [RUN, CONTROL, RUN, RUN]


async def test_the_operators_records_are_listed_again_when_they_may_be_others(store: Counting) -> None:
    now_s = time.monotonic()
    view, keys = a_view(store, lambda: now_s), RunKeys(KEYS.namespace, KEYS.uid).control
    await look(view)
    end = RunEnd(phase="Failed", reason="R", message="", ended_at="2026-01-01T12:00:00Z")
    record = RunRecord(keys.ended, end.model_dump_json().encode(), final=True)
    assert await view.record(SETTINGS.storage_profiles["default"], KEYS.namespace, KEYS.uid, (record,)) == (True, "")
    seen = await look(view)
    assert seen.ended is not None and seen.ended.reason == "R"
    store.put(keys.ended, b"of another operator process")
    assert (await look(view)).ended == seen.ended and store.listed.count(CONTROL) == 1
    now_s += ReadLimits.control_age_s + 1
    assert (await look(view)).ended is None and store.listed.count(CONTROL) == 2


async def test_a_record_that_another_operator_has_written_first_is_read(store: Counting) -> None:
    view, keys = a_view(store), RunKeys(KEYS.namespace, KEYS.uid).control
    await look(view)
    end = RunEnd(phase="Failed", reason="R", message="", ended_at="2026-01-01T12:00:00Z")
    store.put(keys.ended, end.model_copy(update={"reason": "Theirs"}).model_dump_json().encode())
    record = RunRecord(keys.ended, end.model_dump_json().encode(), final=True)
    assert await view.record(SETTINGS.storage_profiles["default"], KEYS.namespace, KEYS.uid, (record,)) == (False, "")
    seen = await look(view)
    assert seen.ended is not None and seen.ended.reason == "Theirs"


async def test_many_checkpoints_hide_no_progress_and_are_listed_once(store: Counting) -> None:
    add_checkpoints(store)
    view = a_view(store)
    for _ in range(3):
        found = await look(view)
        assert (found.error, found.instances[0].progress, found.instances[0].highest_attempt) == ("", PROGRESS, 1)
    parts = [f"{KEYS.prefix}{part}/" for part in ("attempt", "manifest", "quarantine", "progress")]
    assert store.listed == [RUN, *parts, CONTROL, *parts * 2]


async def test_records_beyond_counting_are_an_error_and_what_was_known_stays_known(store: Counting) -> None:
    view = a_view(store)
    known = await look(view)
    add_checkpoints(store)
    for number in range(MOST):
        store.put(f"{KEYS.manifests_prefix}junk-{number}", b"x")
    found = await look(view)
    assert f"{MOST} objects or more below {KEYS.manifests_prefix}" in found.error
    assert found.instances == known.instances


@pytest.mark.parametrize(("stages", "count"), [(1, ReadLimits.objects - 1), (128, ReadLimits.objects // 40)])
def test_long_keys_of_many_objects_take_no_more_memory_than_one_look_may(
    tmp_path: Path, stages: int, count: int
) -> None:
    """Eighty megabytes a LIST of a run or build, and four LISTs for each stage and seed. Audit: S-2"""
    parts = record_prefixes(KEYS.namespace, KEYS.uid, tuple((f"s{number}", 0) for number in range(stages)))
    store, parts_alone = LongKeys(tmp_path, count), stages > 1
    tracemalloc.start()
    try:
        reader = RecordReader(store, Records(), RUN, ReadLimits.objects, parts, parts_alone=parts_alone)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1.5 * MAX_LISTED_BYTES
    told = f"objects whose keys take more than {MAX_LISTED_BYTES >> 20} MiB below "
    assert reader.excess.startswith(tuple(f"{told}{part}, which are not read" for part in parts))


def test_usual_objects_are_as_many_as_one_list_may_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def usual(prefix: str) -> Iterator[ObjectInfo]:
        keys = (
            f"{KEYS.checkpoint(step, 1, 'a1b2c3d4e5f6')}optimizer_0000.pth" for step in range(ReadLimits.objects - 1)
        )
        return (ObjectInfo(key, 1, "e" * 32) for key in keys)

    store = FolderStore(tmp_path)
    monkeypatch.setattr(store, "list", usual)
    assert RecordReader(store, Records(), RUN, ReadLimits.objects).excess == ""


def test_of_progress_records_the_newest_few_are_read_and_only_what_counts_is_kept(tmp_path: Path) -> None:
    """Twenty thousand forged ones were kept parsed, of each run. Audit: S-2"""
    store, records, data = FolderStore(tmp_path), Records(), PROGRESS.model_dump_json().encode()
    for number in range(1, MAX_PROGRESS_RECORDS + 1):
        store.put(KEYS.progress(number), data)
    store.put(f"{KEYS.progress_prefix}{10**9}.{'k' * 200}", data)
    reader = RecordReader(store, records, RUN, ReadLimits.objects)
    control = RecordReader(store, records, CONTROL, ReadLimits.objects)
    instances = ((KEYS.stage, KEYS.seed),)
    [found] = read_instances(reader, control, KEYS.namespace, KEYS.uid, instances)
    assert found.progress == PROGRESS
    store.put(KEYS.progress(MAX_PROGRESS_RECORDS + 1), data)
    records = Records()
    reader = RecordReader(store, records, RUN, ReadLimits.objects)
    [found] = read_instances(reader, control, KEYS.namespace, KEYS.uid, instances)
    assert found.progress is None
    assert [kept for _, kept in records.parsed.values()] == [None] * MAX_PROGRESS_RECORDS
