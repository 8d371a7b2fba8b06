"""A gateway that answers 404 in the store's place, or objects that are away for a moment, cost no checkpoint."""

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from lead_protocol.exit_codes import ExitCode
from lead_protocol.job import InitFrom
from lead_protocol.store.folder import FolderStore
from lead_protocol.store.s3 import S3Store
from lead_protocol.store.s3_target import S3Limits
from lead_testing.minio_server import MinioServer, minio_program
from lead_testing.store_proxy import Fault, StoreProxy
from lead_testing.toy_jobs import KEYS, a_toy_job, manifests
from lead_testing.toy_runs import train_here
from lead_trainer.engine.checkpoints import quarantine
from lead_trainer.engine.checkpoints.checkpoint import CheckpointIdentity
from lead_trainer.engine.checkpoints.resume import newest_valid
from lead_trainer.engine.checkpoints.retry_budget import RetryBudget
from lead_trainer.errors import NoValidCheckpoint

QUICK = S3Limits(read_s=10, total_s=20, first_pause_s=0.01, longest_pause_s=0.1)
GATEWAYS: list[Fault] = ["bare-404", "404-page", "404-html", "499", "520", "200-html"]
IDENTITY = CheckpointIdentity(
    keys=KEYS, attempt=2, recipe="toy", config_sha256="", dataset_digests=(), world_size=1, parts=1, best_by="",
    best_is_greatest=False,
)  # fmt: skip


@pytest.fixture(scope="module")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MinioServer]:
    with MinioServer(minio_program(), tmp_path_factory.mktemp("minio")) as server:
        yield server


@pytest.fixture
def proxy(minio: MinioServer) -> Iterator[StoreProxy]:
    with StoreProxy(minio.endpoint) as proxy:
        yield proxy


@pytest.fixture
def store(minio: MinioServer, proxy: StoreProxy) -> S3Store:
    bucket = f"test-{secrets.token_hex(6)}"
    minio.admin().make_bucket(bucket)
    return S3Store(minio.target(bucket, endpoint=proxy.endpoint), QUICK)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Parameters of the same training with nothing in its way."""
    folder = tmp_path_factory.mktemp("undisturbed")
    store = FolderStore(folder / "store")
    train_here(store, folder, a_toy_job(epochs=3))
    return manifests(store)[-1].parameters_sha256


@pytest.mark.parametrize("gateway", GATEWAYS)
def test_a_moment_of_it_during_commits_and_during_a_resume_changes_nothing(
    store: S3Store, proxy: StoreProxy, tmp_path: Path, undisturbed: str, gateway: Fault
) -> None:
    for part in ("/checkpoints/", "/manifest/"):
        proxy.plan(gateway, method="PUT", part=part, times=3)
    train_here(store, tmp_path, a_toy_job(epochs=2))
    for method in ("HEAD", "GET"):  # the LIST, without a key, is answered by the store
        proxy.plan(gateway, method=method, part="/checkpoints/", times=4)
    proxy.plan(gateway, method="GET", part="/manifest/0", times=4)
    assert train_here(store, tmp_path, a_toy_job(2, epochs=3)) == ExitCode.DONE
    assert proxy.seen.count("PUT", fault=gateway) == 6 and proxy.seen.count("GET", fault=gateway) == 8
    assert list(store.list(KEYS.quarantine_prefix)) == []
    assert [(one.step, one.attempt) for one in manifests(store)] == [(6, 1), (12, 1), (18, 2)]
    assert manifests(store)[-1].parameters_sha256 == undisturbed


def a_trained_store(folder: Path, epochs: int = 2) -> FolderStore:
    store = FolderStore(folder / "store")
    train_here(store, folder, a_toy_job(epochs=epochs))
    return store


def lose_a_file_of_each(folder: Path, store: FolderStore) -> dict[Path, bytes]:
    """Removes one object of each checkpoint; returns what lay there."""
    lost = {}
    for manifest in manifests(store):
        path = folder / "store" / manifest.files["config.json"].key
        lost[path] = path.read_bytes()
        path.unlink()
    return lost


def restore(lost: dict[Path, bytes]) -> None:
    for path, data in lost.items():
        path.write_bytes(data)


def test_what_is_missing_is_looked_for_again_after_a_pause(tmp_path: Path) -> None:
    store = a_trained_store(tmp_path)
    lost, pauses = lose_a_file_of_each(tmp_path, store), list[float]()

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        restore(lost)

    found = newest_valid(store, IDENTITY, tmp_path / "resume", RetryBudget(pause=pause))
    assert found is not None and (found.manifest.step, pauses) == (12, [quarantine.RECHECK_S])
    assert list(store.list(KEYS.quarantine_prefix)) == []


def test_a_checkpoint_that_retention_removes_meanwhile_is_not_called_corrupt(tmp_path: Path) -> None:
    store = a_trained_store(tmp_path)
    newest = manifests(store)[-1]
    (tmp_path / "store" / newest.files["config.json"].key).unlink()

    def pause(seconds: float) -> None:
        store.delete(KEYS.manifest(12, 0))

    found = newest_valid(store, IDENTITY, tmp_path / "resume", RetryBudget(pause=pause))
    assert found is not None and found.manifest.step == 6
    assert list(store.list(KEYS.quarantine_prefix)) == []


def test_a_quarantine_for_missing_objects_is_undone_when_nothing_else_is_valid_and_they_are_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantine, "RECHECK_S", 0.0)
    store = a_trained_store(tmp_path)
    lost = lose_a_file_of_each(tmp_path, store)
    with pytest.raises(NoValidCheckpoint, match="2 checkpoints were committed, none of them is valid"):
        train_here(store, tmp_path, a_toy_job(2))
    assert json.loads(store.get(KEYS.quarantine(12, 0), max_bytes=10_000))["missing"] is True
    restore(lost)
    assert train_here(store, tmp_path, a_toy_job(3, epochs=3)) == ExitCode.DONE
    assert store.get(KEYS.manifest(12, 1), max_bytes=10**6) == store.get(KEYS.manifest(12, 0), max_bytes=10**6)
    assert [(one.step, one.attempt) for one in manifests(store)][-2:] == [(12, 1), (18, 3)]


def test_a_corrupt_checkpoint_stays_quarantined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "RECHECK_S", 0.0)
    store = a_trained_store(tmp_path, epochs=1)
    path = tmp_path / "store" / manifests(store)[0].files["config.json"].key
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    for attempt in (2, 3):
        with pytest.raises(NoValidCheckpoint):
            train_here(store, tmp_path, a_toy_job(attempt))
        path.write_bytes(whole)  # somebody writes there: nothing of it is believed any more


def test_a_quarantined_checkpoint_that_is_whole_again_may_be_named_by_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantine, "RECHECK_S", 0.0)
    store = a_trained_store(tmp_path)
    lost = lose_a_file_of_each(tmp_path, store)
    with pytest.raises(NoValidCheckpoint):
        train_here(store, tmp_path, a_toy_job(2))
    restore(lost)
    child = a_toy_job(stage="posttrain", epochs=1, init_from=InitFrom(manifests_prefix=KEYS.manifests_prefix))
    assert train_here(store, tmp_path / "child", child) == ExitCode.DONE
