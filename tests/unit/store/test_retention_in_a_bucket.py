"""Old checkpoints in a real bucket: pods write with a credential that may not delete, the operator sweeps."""

import asyncio
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from lead_operator.bucket import checkpoint_gc as checkpoint_sweep
from lead_operator.bucket.checkpoint_gc import CheckpointGC, GCRequest
from lead_operator.cli.storage_init import Account, EmbeddedStore, ProfileAccounts, init_storage
from lead_operator.cli.store_policies import Tenant, run_statements
from lead_operator.settings import StorageProfile
from lead_protocol.store.object_store import ObjectStore, StoreDenied, StoreUnavailable
from lead_protocol.store.s3 import S3Store
from lead_testing.minio_server import ROOT_PASSWORD, ROOT_USER, MinioServer
from lead_testing.toy_jobs import KEYS, UID, a_toy_job, manifests
from lead_testing.toy_runs import train_here
from lead_trainer.commands.fsck import check_prefix

STEPS = (6, 12, 18, 24, 30, 36)


@dataclass
class Bucket:
    profile: StorageProfile
    trainer: S3Store
    operator: S3Store
    root: S3Store


@pytest.fixture
def bucket_of_a_run(minio: MinioServer) -> Bucket:
    some = secrets.token_hex(4)
    profile = StorageProfile(f"p{some}", minio.endpoint, f"bucket-{some}", prefix="team", secure=False)
    trainer, operator = (
        Account(f"trainer-{some}", "trainer-secret"),
        Account(f"lead-operator-{some}", "operator-secret"),
    )
    people = {KEYS.namespace: Account(f"lead-data-{some}", "data-secret")}
    entry = ProfileAccounts(profile, operator, people)
    init_storage(EmbeddedStore(Account(ROOT_USER, ROOT_PASSWORD), (entry,)))
    # A pod's rights by a key of a user: what the token's subject is asked for stands in test_identities_at_the_store.
    statements = run_statements(Tenant(profile, KEYS.namespace), "lead-run")
    for statement in statements:
        del statement["Condition"]
    minio.add_user(trainer.access_key, trainer.secret_key, {"Version": "2012-10-17", "Statement": statements})
    target = minio.target(profile.bucket, "team")
    users = [
        S3Store(replace(target, access_key=user.access_key, secret_key=user.secret_key)) for user in (trainer, operator)
    ]
    return Bucket(profile, *users, S3Store(target))


def a_request(bucket: Bucket, *, done: bool, attempt: int = 1) -> GCRequest:
    listed = tuple(info.key for info in bucket.operator.list(KEYS.manifests_prefix))
    return GCRequest(bucket.profile, KEYS, listed, keep_last=3, keep_best=1, live_attempt=attempt, done=done)


def sweep(store: ObjectStore, *requests: GCRequest) -> None:
    """Asks once for each, as passes do, and waits for all."""

    async def all_of_them() -> None:
        sweeper = CheckpointGC(lambda profile: store)
        for request in requests:
            sweeper.ask(request)
            await asyncio.wait_for(sweeper.settle(), 60)
        sweeper.close()

    asyncio.run(all_of_them())


def steps_of_data(store: ObjectStore) -> set[int]:
    prefix = KEYS.checkpoints_prefix
    return {int(info.key.removeprefix(prefix).split("/")[0]) for info in store.list(prefix)}


def forge(bucket: Bucket, count: int, metrics: Callable[[int], dict[str, float]] = lambda step: {}) -> None:
    """Commits `count` small checkpoints, with the steps and files of a toy run."""
    train_manifest = {
        "run_uid": UID, "stage": "train", "seed": 0, "attempt": 1, "nonce": "abc", "epoch": 1, "step_in_epoch": 0,
        "parent_sha256": None, "recipe": "toy", "config_sha256": "5" * 64, "dataset_digests": [], "world_size": 1,
        "torch_version": "0", "parameters_sha256": "5" * 64, "saved_at": "",
    }  # fmt: skip
    for step in range(1, count + 1):
        key = f"{KEYS.checkpoint(step, 1, 'abc')}model.pth"
        bucket.trainer.create(key, b"x")
        files = {"model.pth": {"key": key, "size": 1, "sha256": "5" * 64}}
        document = {**train_manifest, "step": step, "files": files, "metrics": metrics(step)}
        bucket.trainer.create(KEYS.manifest(step, 0), json.dumps(document).encode())


def test_six_epochs_of_a_pod_leave_the_newest_three_and_the_best_and_fsck_is_clean(
    bucket_of_a_run: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = bucket_of_a_run
    train_here(bucket.trainer, tmp_path, a_toy_job(epochs=6), removes_old_checkpoints=False)
    assert "old checkpoints stay" not in "".join(capsys.readouterr())
    written = manifests(bucket.root)
    assert tuple(manifest.step for manifest in written) == STEPS
    best = min(written, key=lambda manifest: manifest.metrics["loss"]).step
    abandoned = f"{KEYS.checkpoint(12, 0, 'dead')}model_0001.pth"
    about_to_be_committed = f"{KEYS.checkpoint(42, 1, 'live')}model_0006.pth"
    for key in (abandoned, about_to_be_committed):
        bucket.trainer.put(key, b"x")

    sweep(bucket.operator, a_request(bucket, done=False))
    kept = {best, 24, 30, 36}
    assert {manifest.step for manifest in manifests(bucket.root)} == kept
    assert bucket.root.head(abandoned) is not None  # as long as the stage runs
    sweep(bucket.operator, a_request(bucket, done=True))
    assert bucket.root.head(abandoned) is None
    assert steps_of_data(bucket.root) == kept | {42}
    named = {file.key for manifest in manifests(bucket.root) for file in manifest.files.values()}
    assert {info.key for info in bucket.root.list(KEYS.checkpoints_prefix)} == named | {about_to_be_committed}

    monkeypatch.setattr("lead_trainer.commands.fsck.named_store", lambda url, environ: bucket.root)
    assert check_prefix(f"runs/{KEYS.namespace}/{KEYS.uid}", None, {}) == 0
    assert f"{len(kept)} checkpoints checked, 0 findings" in capsys.readouterr().out


class Watched:
    """Passes calls on, counts them, and fails the ones it is told to."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.calls: list[tuple[str, str]] = []
        self.fails: Callable[[str, str], Exception | None] = lambda verb, key: None

    def __getattr__(self, verb: str) -> Any:
        def call(key: str, **arguments: Any) -> Any:
            self.calls.append((verb, key))
            if (error := self.fails(verb, key)) is not None:
                raise error
            return getattr(self._store, verb)(key, **arguments)

        return call

    def count(self, verb: str) -> int:
        return sum(called == verb for called, _ in self.calls)


def test_each_manifest_is_read_once_and_an_idle_run_costs_no_call(bucket_of_a_run: Bucket) -> None:
    forge(bucket_of_a_run, 5)
    store = Watched(bucket_of_a_run.operator)
    first = a_request(bucket_of_a_run, done=False)
    later = replace(first, manifests=first.manifests[2:])
    sweep(store, first, first, later, later)  # type: ignore[arg-type]
    assert (store.count("get"), store.count("delete"), store.count("list")) == (5, 4, 0)
    store.calls.clear()
    sweep(store, replace(later, manifests=later.manifests[-3:]))  # type: ignore[arg-type]
    assert store.calls == []


def test_many_old_checkpoints_go_in_portions_manifests_before_their_data(
    bucket_of_a_run: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_sweep, "MAX_REMOVALS", 2)
    monkeypatch.setattr(checkpoint_sweep, "PAUSE_S", 0.0)
    forge(bucket_of_a_run, 10, lambda step: {"loss": float(step)})
    store = Watched(bucket_of_a_run.operator)
    sweep(store, a_request(bucket_of_a_run, done=False))  # type: ignore[arg-type]
    assert [m.step for m in manifests(bucket_of_a_run.root)] == [1, 8, 9, 10]
    deleted = [key.removeprefix(KEYS.prefix).split("/")[0] for verb, key in store.calls if verb == "delete"]
    assert deleted == ["manifest", "checkpoints"] * 6
    assert store.count("get") == 10


def test_a_store_that_fails_in_the_middle_is_tried_again_and_leaves_nothing_half_done(
    bucket_of_a_run: Bucket, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checkpoint_sweep, "RETRY_S", 0.0)
    forge(bucket_of_a_run, 5)
    store = Watched(bucket_of_a_run.operator)
    left = [StoreUnavailable("no answer")] * 3

    def fail_data_three_times(verb: str, key: str) -> Exception | None:
        return left.pop() if left and verb == "delete" and "/checkpoints/" in key else None

    store.fails = fail_data_three_times
    sweep(store, a_request(bucket_of_a_run, done=False))  # type: ignore[arg-type]
    assert steps_of_data(bucket_of_a_run.root) == {3, 4, 5} == {m.step for m in manifests(bucket_of_a_run.root)}
    assert "".join(capsys.readouterr()).count("old_checkpoints_stay_for_now") == 1


def test_a_credential_that_may_not_delete_is_told_of_once_and_tried_with_the_next_checkpoint(
    bucket_of_a_run: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    forge(bucket_of_a_run, 5)
    store = Watched(bucket_of_a_run.trainer)
    request = a_request(bucket_of_a_run, done=False)
    newer = replace(request, manifests=request.manifests[1:])
    with pytest.raises(StoreDenied):
        bucket_of_a_run.trainer.delete(request.manifests[0])
    sweep(store, request, request, newer)  # type: ignore[arg-type]
    assert store.count("delete") == 2
    assert len(manifests(bucket_of_a_run.root)) == 5
    assert "".join(capsys.readouterr()).count("old_checkpoints_stay_for_now") == 1


def test_what_a_killed_operator_left_of_a_removal_goes_at_the_stages_end(bucket_of_a_run: Bucket) -> None:
    forge(bucket_of_a_run, 5)
    bucket_of_a_run.operator.delete(KEYS.manifest(1, 0))  # and was killed before it came to the data
    sweep(bucket_of_a_run.operator, a_request(bucket_of_a_run, done=True))
    assert steps_of_data(bucket_of_a_run.root) == {3, 4, 5}


def test_data_stays_where_a_manifest_cannot_be_read(bucket_of_a_run: Bucket) -> None:
    forge(bucket_of_a_run, 3)
    bucket_of_a_run.trainer.put(KEYS.manifest(2, 0), b'{"format": "lead-checkpoint/2"}')
    sweep(bucket_of_a_run.operator, a_request(bucket_of_a_run, done=True, attempt=2))
    assert steps_of_data(bucket_of_a_run.root) == {1, 2, 3}


def test_a_spoiled_checkpoint_goes_with_its_data_and_its_record_once_newer_ones_stand(bucket_of_a_run: Bucket) -> None:
    forge(bucket_of_a_run, 6)
    bucket_of_a_run.trainer.create(KEYS.quarantine(2, 0), b"{}")
    bucket_of_a_run.trainer.create(KEYS.quarantine(5, 0), b"{}")
    spoiled = (KEYS.manifest(2, 0), KEYS.manifest(5, 0))
    request = a_request(bucket_of_a_run, done=True)
    sound = tuple(key for key in request.manifests if key not in spoiled)
    sweep(bucket_of_a_run.operator, replace(request, manifests=sound, quarantined=spoiled))
    assert {m.step for m in manifests(bucket_of_a_run.root)} == {3, 4, 5, 6} == steps_of_data(bucket_of_a_run.root)
    assert [info.key for info in bucket_of_a_run.root.list(KEYS.quarantine_prefix)] == [KEYS.quarantine(5, 0)]
