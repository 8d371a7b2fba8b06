"""A spoiled checkpoint is found, set aside with its reason, and the next older one is used; never step 0 in silence."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lead_protocol.exit_codes import ExitCode
from lead_protocol.job import InitFrom
from lead_protocol.store.folder import FolderStore
from lead_testing.toy_jobs import KEYS, a_toy_job, manifests
from lead_testing.toy_runs import train_here
from lead_trainer.errors import BadConfig, NoValidCheckpoint, exit_code_of


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def of_another_run(path: Path) -> None:
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "run_uid": "another"}))


def of_the_future(path: Path) -> None:
    path.write_text(path.read_text().replace("lead-checkpoint/1", "lead-checkpoint/2"))


def a_trained_store(folder: Path, epochs: int = 3) -> FolderStore:
    store = FolderStore(folder / "store")
    train_here(store, folder, a_toy_job(epochs=epochs))
    return store


def object_path(folder: Path, key: str) -> Path:
    return folder / "store" / key


def test_what_a_newer_trainer_tells_besides_spoils_no_checkpoint(tmp_path: Path) -> None:
    store = a_trained_store(tmp_path, epochs=2)
    path = object_path(tmp_path, KEYS.manifest(12, 0))
    plain = path.read_text()
    path.write_text(json.dumps({**json.loads(plain), "told_since_next_year": {"by": "a newer trainer"}}))
    origin = InitFrom(manifests_prefix=KEYS.manifests_prefix)
    tune = a_toy_job(stage="tune", epochs=1, init_from=origin)
    train_here(store, tmp_path / "tune", tune)
    train_here(store, tmp_path, a_toy_job(2, epochs=3))
    assert list(store.list(KEYS.quarantine_prefix)) == []
    path.write_text(plain)
    assert [(one.step, one.attempt) for one in manifests(store)] == [(6, 1), (12, 1), (18, 2)]


DATA_FILES = ["model_0002.pth", "optimizer_0002.pth", "loop_0002.json", "config.json"]


@pytest.mark.parametrize("spoil", [cut, flip, zero, Path.unlink])
@pytest.mark.parametrize("name", DATA_FILES)
def test_a_spoiled_object_leads_to_the_next_older_checkpoint(
    tmp_path: Path, name: str, spoil: Callable[[Path], None]
) -> None:
    store = a_trained_store(tmp_path)
    newest = manifests(store)[-1]
    spoil(object_path(tmp_path, newest.files[name].key))
    assert train_here(store, tmp_path, a_toy_job(2)) == ExitCode.DONE
    record = json.loads(store.get(KEYS.quarantine(18, 0), max_bytes=10_000))
    assert name in record["reason"] and record["attempt"] == 2
    again = manifests(store)[-1]
    assert (again.step, again.attempt, again.parameters_sha256) == (18, 2, newest.parameters_sha256)
    assert store.head(KEYS.manifest(18, 1)) is not None  # the spoiled manifest did not block its step


@pytest.mark.parametrize("spoil", [cut, zero, of_another_run, of_the_future])
def test_a_spoiled_manifest_leads_to_the_next_older_checkpoint(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    store = a_trained_store(tmp_path)
    expected = manifests(store)[-1].parameters_sha256
    spoil(object_path(tmp_path, KEYS.manifest(18, 0)))
    train_here(store, tmp_path, a_toy_job(2))
    assert store.head(KEYS.quarantine(18, 0)) is not None
    assert b'"attempt": 2' in store.get(KEYS.manifest(18, 1), max_bytes=10**6)
    assert expected.encode() in store.get(KEYS.manifest(18, 1), max_bytes=10**6)


def test_when_none_is_sound_the_run_ends_with_code_66(tmp_path: Path) -> None:
    store = a_trained_store(tmp_path, epochs=2)
    for manifest in manifests(store):
        flip(object_path(tmp_path, manifest.files[f"model_{manifest.epoch - 1:04d}.pth"].key))
    for attempt in (2, 3):  # also when all of them are in quarantine already
        with pytest.raises(NoValidCheckpoint, match="none of them is valid") as failure:
            train_here(store, tmp_path, a_toy_job(attempt))
        assert exit_code_of(failure.value) == ExitCode.NO_VALID_CHECKPOINT
    assert [manifest.step for manifest in manifests(store)] == [6, 12]


def test_resume_never_starts_at_step_0_and_sets_the_old_checkpoints_aside(tmp_path: Path) -> None:
    store = a_trained_store(tmp_path, epochs=2)
    train_here(store, tmp_path, a_toy_job(2, epochs=1, resume="Never"))
    assert b"superseded by attempt 2" in store.get(KEYS.quarantine(12, 0), max_bytes=10_000)
    assert store.head(KEYS.manifest(6, 1)) is not None


def test_another_config_is_refused_by_the_key_that_changed(tmp_path: Path) -> None:
    store = a_trained_store(tmp_path, epochs=1)
    with pytest.raises(BadConfig, match=r"lr was 0\.05 and is 0\.01"):
        train_here(store, tmp_path, a_toy_job(2, config={"lr": 0.01}))


def test_more_epochs_continue_the_same_run(tmp_path: Path) -> None:
    store = a_trained_store(tmp_path, epochs=1)
    train_here(store, tmp_path, a_toy_job(2, epochs=2))
    assert [manifest.step for manifest in manifests(store)] == [6, 12]


def test_a_stage_starts_from_the_newest_sound_weights_of_its_parent(tmp_path: Path) -> None:
    store = a_trained_store(tmp_path, epochs=2)
    parent = manifests(store)
    flip(object_path(tmp_path, parent[-1].files["model_0001.pth"].key))
    child = a_toy_job(stage="posttrain", epochs=1, init_from=InitFrom(manifests_prefix=KEYS.manifests_prefix))
    train_here(store, tmp_path, child)
    first = manifests(store, child.keys)[0]
    assert (first.step, first.parent_sha256) == (6, None)  # the count of epochs starts again
    with pytest.raises(NoValidCheckpoint, match=r"^spec\.stages\[lost\]\.initFrom runs/x/: found no checkpoint"):
        lost = a_toy_job(stage="lost", init_from=InitFrom(manifests_prefix="runs/x/"))
        train_here(store, tmp_path, lost)
