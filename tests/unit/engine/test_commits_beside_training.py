"""A checkpoint is committed beside the next steps, and holds, says and costs what one committed at once does."""

import gc
import hashlib
import io
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from lead_protocol.exit_codes import ExitCode
from lead_protocol.manifests import CheckpointManifest
from lead_protocol.progress_record import ProgressRecord
from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import ObjectStore, StoreDenied, StoreUnavailable
from lead_protocol.store.s3 import S3Store
from lead_testing.commits_under_way import (
    MOMENTS,
    acting,
    be_denied,
    be_denied_after_steps,
    killed_at,
    let_steps_pass,
    slowed_at,
    stopped_at,
)
from lead_testing.minio_server import MinioServer, minio_program
from lead_testing.toy_jobs import KEYS, a_toy_job, manifests, progress_record
from lead_testing.toy_recipe import RECIPE, Calls
from lead_testing.toy_runs import toy_recipe_with, train_group, train_here
from lead_trainer.engine.attempt import given
from lead_trainer.engine.checkpoints import checkpoint, commit
from lead_trainer.engine.checkpoints.background import Background
from lead_trainer.engine.checkpoints.retry_budget import RetryBudget
from lead_trainer.engine.checkpoints.snapshot import HostCopies

EVERYTHING: dict[str, Any] = {"ema_decay": 0.9, "use_grad_clipper": True, "validation_samples": 8}
AT_ONCE: dict[str, Any] = {"async_checkpoints": False}
STEPS = [4, 6, 8, 12, 16, 18]  # that have a checkpoint: every 4, and each epoch's end


def a_job(attempt: int = 1, **changes: Any) -> Any:
    """Returns a job of 18 steps that keeps every checkpoint."""
    config = changes.pop("config", {})
    return a_toy_job(attempt, every_steps=4, keep_last=100, config=config, **changes)


def files_by_step(store: ObjectStore) -> dict[int, dict[str, str]]:
    """Returns the SHA-256 of each file by name by step, but for the config, which says how it was committed."""
    return {
        one.step: {name: file.sha256 for name, file in one.files.items() if name != "config.json"}
        for one in manifests(store)
    }


def chain_is_whole(store: ObjectStore) -> bool:
    """Returns whether each checkpoint names the one before as its parent."""
    found = [store.get(info.key, max_bytes=10**6) for info in store.list(KEYS.manifests_prefix)]
    parents = [CheckpointManifest.model_validate_json(data).parent_sha256 for data in found]
    return parents == [None, *(hashlib.sha256(data).hexdigest() for data in found[:-1])]


@pytest.fixture(scope="module")
def at_once(tmp_path_factory: pytest.TempPathFactory) -> FolderStore:
    """The store of a run that waits for each of its commits."""
    folder = tmp_path_factory.mktemp("at-once")
    store = FolderStore(folder / "store")
    train_here(store, folder, a_job(config=AT_ONCE))
    return store


@pytest.fixture(scope="module")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MinioServer]:
    with MinioServer(minio_program(), tmp_path_factory.mktemp("minio")) as server:
        yield server


@pytest.fixture
def open_store(minio: MinioServer) -> Callable[[], ObjectStore]:
    bucket = f"test-{secrets.token_hex(6)}"
    minio.admin().make_bucket(bucket)
    return partial(S3Store, minio.target(bucket))


@pytest.mark.parametrize("moment", MOMENTS)
def test_files_have_the_bytes_of_a_commit_at_once_although_steps_pass(tmp_path: Path, moment: str) -> None:
    expected, store = FolderStore(tmp_path / "at-once/store"), FolderStore(tmp_path / "store")
    train_here(expected, tmp_path / "at-once", a_job(config=EVERYTHING | AT_ONCE))
    with slowed_at(moment, 4):
        train_here(store, tmp_path, a_job(config=EVERYTHING))
    assert files_by_step(store) == files_by_step(expected) and list(files_by_step(store)) == STEPS
    assert {len(files) for files in files_by_step(store).values()} == {8}
    shared = {"step", "epoch", "step_in_epoch", "final", "parameters_sha256", "metrics", "config_sha256", "parts"}
    assert [one.model_dump(include=shared) for one in manifests(store)] == [
        one.model_dump(include=shared) for one in manifests(expected)
    ]
    assert chain_is_whole(store)


def test_files_of_tied_strided_and_half_tensors_have_the_bytes_of_those_in_use() -> None:
    def saved(part: Any) -> bytes:
        torch.save(part, file := io.BytesIO())
        return file.getvalue()

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))
    model[1].weight = model[0].weight
    model[1].bias = torch.nn.Parameter(torch.arange(16.0)[::2].bfloat16())
    whole = torch.arange(64.0)
    optimizer = torch.optim.AdamW(model.parameters(), amsgrad=True)
    model[0].weight.grad = torch.ones(8, 8)
    optimizer.step()
    parts = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "views": {"left": whole[:32].view(4, 8).t(), "right": whole[32:], "none": torch.empty(0)},
    }
    copies = HostCopies(torch.device("cpu"))
    for _ in range(2):  # into the same memory
        whole += 1
        copied = copies.of(parts)
        for name, part in parts.items():
            assert saved(copied[name]) == saved(part), name


def test_a_copy_takes_the_memory_of_one_state_however_many_are_made() -> None:
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.Adam(model.parameters())
    model.weight.grad = torch.ones(64, 64)
    optimizer.step()
    copies, places = HostCopies(torch.device("cpu")), set[int]()

    def held(parts: Any) -> dict[int, int]:
        saved = [*parts["model"].values(), *parts["optimizer"]["state"][0].values()]
        return {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in saved}

    for _ in range(3):
        parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        copied = held(copies.of(parts))
        assert sum(copied.values()) == sum(held(parts).values())
        assert not copied.keys() & held(parts).keys()
        places |= copied.keys()
        gc.collect()
    assert len(places) == len(copied)


def test_one_commit_is_under_way_at_a_time_and_the_next_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, begun, ended = checkpoint.commit_checkpoint, list[int](), list[int]()

    def watched(store: Any, identity: Any, loop: Any, *given: Any, **options: Any) -> Any:
        assert begun == ended
        begun.append(loop["step"])
        committed = plain(store, identity, loop, *given, **options)
        ended.append(loop["step"])
        return committed

    monkeypatch.setattr(commit, "commit_checkpoint", watched)
    store = FolderStore(tmp_path / "store")
    with acting("before staging", 4, lambda: let_steps_pass(2)):  # step 6 is the next one that is due
        train_here(store, tmp_path, a_job())
    assert begun == ended == STEPS


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_kill_while_a_commit_is_under_way_resumes_the_one_before(
    tmp_path: Path, moment: str, open_store: Callable[[], ObjectStore], at_once: FolderStore
) -> None:
    codes = train_group(tmp_path, a_job(), 1, open_store=open_store, around=partial(killed_at, moment, 8))
    store = open_store()
    assert codes == [-9] and [one.step for one in manifests(store)] == [4, 6]
    assert train_group(tmp_path, a_job(2), 1, open_store=open_store) == [ExitCode.DONE]
    record = progress_record(store, 2)
    assert record.resumed_from_step == 6
    assert files_by_step(store) == files_by_step(at_once)


@pytest.mark.parametrize("moment", MOMENTS)
def test_sigterm_while_a_commit_is_under_way_commits_the_last_step_after_it(
    tmp_path: Path, moment: str, open_store: Callable[[], ObjectStore], at_once: FolderStore
) -> None:
    codes = train_group(tmp_path, a_job(), 1, open_store=open_store, around=partial(stopped_at, moment, 8))
    store = open_store()
    assert codes == [ExitCode.STOPPED]
    (*before, last) = manifests(store)
    assert [one.step for one in before] == [4, 6, 8] and 8 < last.step <= 12 and chain_is_whole(store)
    record = progress_record(store)
    assert record.checkpoint is not None
    assert (record.phase, record.checkpoint.step, record.checkpoints) == ("Stopped", last.step, 4)
    assert train_group(tmp_path, a_job(2), 1, open_store=open_store) == [ExitCode.DONE]
    assert files_by_step(store).items() >= files_by_step(at_once).items()


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_commit_that_fails_ends_all_ranks_as_one_at_once_does(tmp_path: Path, ranks: int) -> None:
    endings = list[Any]()
    for config in ({}, AT_ONCE):
        folder = tmp_path / str(len(endings))
        # no step passes while training waits for a commit, so one at once is denied at once
        act = be_denied if config else be_denied_after_steps
        around = partial(acting, "while uploading", 8, act)
        codes = train_group(folder, a_job(config=config), ranks, around=around)
        store = FolderStore(folder / "store")
        record = progress_record(store)
        endings.append((codes, record.phase, record.message, [one.step for one in manifests(store)]))
        assert record.checkpoint is not None and record.checkpoint.step == 6
    assert endings[0] == endings[1]
    assert endings[0][:2] == ([ExitCode.STORE_DENIED] * ranks, "Failed")


def test_a_commit_that_failed_is_found_at_the_end_of_the_step_that_runs(tmp_path: Path) -> None:
    calls = list[int]()

    def deny() -> None:
        let_steps_pass()
        calls.append(Calls.steps)
        raise StoreDenied("AccessDenied")

    job = a_toy_job(epochs=1, every_steps=4, config={"samples": 800})
    with acting("before the manifest", 4, deny), pytest.raises(StoreDenied):
        train_here(FolderStore(tmp_path / "store"), tmp_path, job)
    assert 0 <= Calls.steps - calls[0] <= 1


def test_an_outage_is_waited_out_while_steps_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: FolderStore
) -> None:
    pauses = list[float]()

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        let_steps_pass(1)

    class Away(FolderStore):
        def create_file(self, key: str, path: Path, *, sha256: str) -> bool:
            if f"{8:012d}" in key and len(pauses) < 2:
                raise StoreUnavailable("no answer")
            return super().create_file(key, path, sha256=sha256)

    monkeypatch.setattr(given, "RetryBudget", lambda **asked: RetryBudget(pause=pause, **asked))
    store = Away(tmp_path / "store")
    train_here(store, tmp_path, a_job())
    assert pauses == [0.5, 1.0] and files_by_step(store) == files_by_step(at_once)


def test_the_end_of_a_stage_waits_for_the_commit_under_way(tmp_path: Path) -> None:
    store, seen = FolderStore(tmp_path / "store"), list[int]()

    def hold() -> None:
        let_steps_pass(1)  # the last one of the stage
        seen.append(len(manifests(store)))

    with acting("before the manifest", 5, hold):
        assert train_here(store, tmp_path, a_toy_job(epochs=1, every_steps=5)) == ExitCode.DONE
    assert seen == [0] and chain_is_whole(store)
    assert [(one.step, one.final) for one in manifests(store)] == [(5, False), (6, True)]


@pytest.mark.parametrize("moment", MOMENTS)
def test_two_ranks_agree_beside_the_steps_on_the_files_that_they_agree_on_at_once(tmp_path: Path, moment: str) -> None:
    config = {"batch_size": 12, "samples": 72}
    assert train_group(tmp_path / "at-once", a_job(config=config | AT_ONCE), 2) == [ExitCode.DONE] * 2
    expected = files_by_step(FolderStore(tmp_path / "at-once/store"))
    folder = tmp_path / "beside"
    assert train_group(folder, a_job(config=config), 2, around=partial(killed_at, moment, 8))[0] == -9
    assert [one.step for one in manifests(FolderStore(folder / "store"))] == [4, 6]
    codes = train_group(folder, a_job(2, config=config), 2, around=partial(stopped_at, moment, 8))
    assert codes == [ExitCode.STOPPED] * 2
    assert train_group(folder, a_job(3, config=config), 2) == [ExitCode.DONE] * 2
    assert files_by_step(FolderStore(folder / "store")).items() >= expected.items()


def test_ranks_with_other_weights_are_found_beside_the_steps(tmp_path: Path) -> None:
    codes = train_group(tmp_path, a_job(config={"batch_size": 12, "samples": 72}), 2, around=_spoiled_copies)
    assert codes == [ExitCode.PROGRAM_ERROR] * 2
    store = FolderStore(tmp_path / "store")
    record = progress_record(store)
    assert "after step 4 the ranks hold different weights: rank 0 " in record.message
    assert manifests(store) == []


@contextmanager
def _spoiled_copies() -> Iterator[None]:
    """Lets each rank compare weights of its own, as a fault of its memory would."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit, "parameters_sha256", lambda weights: secrets.token_hex(32))
        yield


def test_a_checkpoint_is_reported_once_its_manifest_is_there_and_not_before(tmp_path: Path) -> None:
    reported = list[int]()

    class Watched(FolderStore):
        def put(self, key: str, data: bytes) -> None:
            if key == KEYS.progress(1) and (named := ProgressRecord.model_validate_json(data).checkpoint):
                assert self.head(named.manifest_key) is not None
                reported.append(named.step)
            super().put(key, data)

    with slowed_at("before the manifest", 4), slowed_at("before the manifest", 8):
        train_here(Watched(tmp_path / "store"), tmp_path, a_toy_job(epochs=1, every_steps=4, config={"samples": 96}))
    assert reported and reported == sorted(reported) and reported[-1] == 12


def test_what_goes_is_removed_after_the_commit_that_makes_it_expendable(tmp_path: Path) -> None:
    store, kept = FolderStore(tmp_path / "store"), list[list[int]]()

    def look() -> None:
        let_steps_pass(1)
        kept.append([one.step for one in manifests(store)])

    with acting("before the manifest", 12, look):
        train_here(store, tmp_path, a_toy_job(epochs=3, every_steps=4, keep_last=2))
    assert len(kept[0]) >= 2 and kept[0][-1] == 8  # the new one is not counted before it is there
    assert [one.step for one in manifests(store)][-2:] == [16, 18]


def test_an_error_of_a_step_lets_the_commit_under_way_end(tmp_path: Path) -> None:
    store, failing = FolderStore(tmp_path / "store"), Calls.steps + 7

    def step(*given: Any) -> Any:
        if Calls.steps + 1 == failing:
            raise ValueError("a fault of the recipe's")
        return RECIPE.step(*given)

    job = a_toy_job(epochs=1, every_steps=4, config={"samples": 96})
    with toy_recipe_with(step=step), slowed_at("before the manifest", 4), pytest.raises(ValueError, match="a fault of"):
        train_here(store, tmp_path, job)
    assert [one.step for one in manifests(store)] == [4]


def test_a_step_that_does_not_fit_starts_again_from_the_commit_under_way(tmp_path: Path, at_once: FolderStore) -> None:
    store, failing = FolderStore(tmp_path / "store"), [Calls.steps + 6]

    def step(*given: Any) -> Any:
        if Calls.steps + 1 == failing[0]:
            failing[0] = -1
            raise torch.OutOfMemoryError("CUDA out of memory")
        return RECIPE.step(*given)

    with toy_recipe_with(step=step), acting("before the manifest", 4, lambda: let_steps_pass(1)):
        train_here(store, tmp_path, a_job(config={"split_when_out_of_memory": True}))
    assert [one.step for one in manifests(store)] == STEPS and chain_is_whole(store)
    record = progress_record(store)
    assert record.resumed_from_step == 4


def test_a_late_commit_of_an_older_attempt_with_other_weights_stands_below(
    tmp_path: Path, at_once: FolderStore
) -> None:
    other, store = FolderStore(tmp_path / "other/store"), FolderStore(tmp_path / "store")
    train_here(other, tmp_path / "other", a_job(config={"lr": 0.04}))

    def an_older_attempt_commits_this_step() -> None:
        let_steps_pass()
        for info in other.list(f"{KEYS.prefix}checkpoints/{8:012d}/"):
            store.create(info.key, other.get(info.key, max_bytes=10**6))
        store.create(KEYS.manifest(8, 0), other.get(KEYS.manifest(8, 0), max_bytes=10**6))

    with acting("before the manifest", 8, an_older_attempt_commits_this_step):
        train_here(store, tmp_path, a_job(2))
    assert [(one.step, one.attempt) for one in manifests(store)] == [
        (4, 2), (6, 2), (8, 1), (8, 2), (12, 2), (16, 2), (18, 2),
    ]  # fmt: skip
    assert files_by_step(store) == files_by_step(at_once)


def test_switched_off_no_thread_and_no_copy_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> None:
        raise AssertionError("switched off")

    monkeypatch.setattr(Background, "__init__", refuse)
    monkeypatch.setattr(HostCopies, "__init__", refuse)
    store = FolderStore(tmp_path / "store")
    train_here(store, tmp_path, a_job(config=AT_ONCE))
    assert [one.step for one in manifests(store)] == STEPS
    with pytest.raises(AssertionError, match="switched off"):
        train_here(store, tmp_path, a_job(2, epochs=4))


def test_a_run_may_be_switched_between_attempts(tmp_path: Path, at_once: FolderStore) -> None:
    store = FolderStore(tmp_path / "store")
    for attempt, config in enumerate((AT_ONCE, {}, AT_ONCE), start=1):
        train_here(store, tmp_path, a_job(attempt, epochs=attempt, config=config))
    assert files_by_step(store) == files_by_step(at_once)
