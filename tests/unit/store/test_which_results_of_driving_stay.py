"""Results of driving in a folder store: the newest and the best stay, what failed attempts left goes."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from lead_operator.bucket import closed_loop_gc
from lead_operator.bucket.bucket_view import BucketView, ReadLimits
from lead_operator.bucket.closed_loop_gc import ClosedLoopGC, ResultsRequest, remove_portion
from lead_operator.decisions.observed import ObservedDrive
from lead_operator.decisions.training_run.driven_results import kept_attempts
from lead_operator.memory import Memories
from lead_operator.resources.closed_loop import ClosedLoop
from lead_operator.resources.pod_settings import ComputeResources
from lead_protocol.closed_loop_record import ClosedLoopManifest, DrivenNumbers
from lead_protocol.object_keys import ClosedLoopKeys
from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import ObjectStore, StoreUnavailable
from lead_testing.makers import PROFILE, RUN_UID, SETTINGS

KEYS = ClosedLoopKeys("team-a", RUN_UID, "train", 0)
WANTED = ClosedLoop(1, ("train",), "image", ("drive",), "", ComputeResources({}, {}), 60, None, keep=2)


def a_manifest(number: int, score: float, **fields: object) -> bytes:
    numbers = DrivenNumbers(
        routes=1, recorded=1, driving_score=score, route_completion=score, success_whole_route=0.0,
        success_bench2drive=0.0, infractions_per_km={}, interventions=0,
    )  # fmt: skip
    values = {
        "run_uid": RUN_UID, "stage": "train", "seed": 0, "attempt": number, "pod_uid": "u", "epoch": number,
        "step": 1, "checkpoint_prefix": "p", "numbers": numbers, "files": {}, "saved_at": "",
    } | fields  # fmt: skip
    return ClosedLoopManifest.model_validate(values).model_dump_json().encode()


def publish(store: ObjectStore, attempt: int, score: float | None, **fields: object) -> None:
    """Writes what an attempt leaves; without a score its command failed after some files."""
    store.put(f"{KEYS.results(attempt, attempt)}files/video.mp4", b"frames")
    if score is not None:
        store.put(KEYS.manifest(attempt), a_manifest(attempt, score, **fields))


def read(store: ObjectStore) -> tuple[ObservedDrive, ...]:
    """Returns the results as the operator reads them."""

    async def once() -> tuple[ObservedDrive, ...]:
        view = BucketView(SETTINGS, lambda profile: store)
        found = await view.read_run(
            PROFILE, "team-a", RUN_UID, (("train", 0),), live=frozenset(), max_age_s=0.0, drives=True
        )
        view.close()
        assert found.error == ""
        return found.drives

    return asyncio.run(once())


def attempts(store: ObjectStore) -> set[int]:
    names = [info.key.removeprefix(KEYS.prefix) for info in store.list(KEYS.prefix)]
    return {int(name.split("/")[1].split(".")[0]) for name in names}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FolderStore]:
    """Six attempts, of which the second drove best and the fourth and the last failed."""
    found = FolderStore(tmp_path)
    for attempt, score in ((1, 50.0), (2, 90.0), (3, 60.0), (4, None), (5, 70.0), (6, None)):
        publish(found, attempt, score)
    yield found


def test_the_newest_and_the_best_stay_and_what_failed_attempts_left_goes(store: FolderStore) -> None:
    kept = kept_attempts(read(store), WANTED)
    assert kept == (2, 3, 5)
    assert remove_portion(store, ResultsRequest(PROFILE, KEYS, kept, newest=6))
    assert attempts(store) == {2, 3, 5, 6}  # the pod of the newest attempt may still write
    assert [drive.attempt for drive in read(store)] == [2, 3, 5]


def test_a_commit_goes_before_its_files(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closed_loop_gc, "PORTION", 1)
    assert not remove_portion(store, ResultsRequest(PROFILE, KEYS, (2, 3, 5), newest=6))
    assert [drive.attempt for drive in read(store)] == [2, 3, 5] and 1 in attempts(store)


def test_what_no_pod_writes_as_a_result_is_left_to_people(store: FolderStore) -> None:
    store.put(f"{KEYS.prefix}notes.txt", b"mine")
    remove_portion(store, ResultsRequest(PROFILE, KEYS, (), newest=6))
    assert store.head(f"{KEYS.prefix}notes.txt") is not None


def test_a_store_that_fails_is_asked_again_without_a_further_pass_and_an_answer_is_remembered(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closed_loop_gc, "RETRY_S", 0.01)
    calls = list[str]()

    def store_of(profile: object) -> ObjectStore:
        calls.append("asked")
        if len(calls) < 3:
            raise StoreUnavailable("away")
        return store

    async def asks() -> None:
        gc, request = ClosedLoopGC(store_of, Memories()), ResultsRequest(PROFILE, KEYS, (2,), 6)
        for _ in range(2):
            gc.ask(RUN_UID, [request])
            await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
        gc.close()

    asyncio.run(asks())
    assert attempts(store) == {2, 6} and len(calls) == 3


def test_every_stage_and_seed_is_swept_where_no_further_pass_follows(store: FolderStore) -> None:
    """A pass asks once for all; the one at the end of a run is its last."""
    others = [ClosedLoopKeys("team-a", RUN_UID, "train", seed) for seed in (1, 2)]
    for keys in others:
        for attempt in (1, 2, 3):
            store.put(keys.manifest(attempt), a_manifest(attempt, 50.0, seed=keys.seed))
            store.put(f"{keys.results(attempt, attempt)}files/video.mp4", b"frames")

    async def asks() -> None:
        gc = ClosedLoopGC(lambda profile: store, Memories())
        assert not gc.was_asked(RUN_UID)
        gc.ask(RUN_UID, [ResultsRequest(PROFILE, keys, (3,), 6) for keys in (KEYS, *others)])
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
        assert gc.was_asked(RUN_UID)
        gc.close()

    asyncio.run(asks())
    for keys in others:
        names = {info.key.removeprefix(keys.prefix) for info in store.list(keys.prefix)}
        assert names == {"manifest/000003.json", "0003/000003/files/video.mp4"}


@pytest.mark.parametrize(
    "forged",
    [{"run_uid": "another"}, {"stage": "other"}, {"attempt": 9}, {"seed": 1}],
    ids=lambda forged: next(iter(forged)),
)
def test_a_commit_that_is_not_what_its_key_names_is_no_result(tmp_path: Path, forged: dict[str, object]) -> None:
    store = FolderStore(tmp_path)
    store.put(KEYS.manifest(1), a_manifest(1, 90.0, **forged))
    store.put(KEYS.manifest(2), b'{"numbers": NaN}')
    store.put(KEYS.manifest(3), b"x" * (64 * 1024 + 1))
    assert read(store) == ()


def test_results_are_found_where_a_run_has_too_many_objects_for_one_list(store: FolderStore) -> None:
    for number in range(30):
        store.put(f"runs/team-a/{RUN_UID}/train-s0/tensorboard/{number:03d}", b"x")

    async def once() -> list[int]:
        view = BucketView(SETTINGS, lambda profile: store, limits=ReadLimits(objects=20))
        found = await view.read_run(
            PROFILE, "team-a", RUN_UID, (("train", 0),), live=frozenset(), max_age_s=0.0, drives=True
        )
        view.close()
        return [drive.attempt for drive in found.drives]

    assert asyncio.run(once()) == [1, 2, 3, 5]
