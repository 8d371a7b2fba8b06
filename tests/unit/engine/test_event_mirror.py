"""TensorBoard shows the runs of a namespace by their names, from the bucket, as they grow."""

import json
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

from lead_protocol.object_keys import InstanceKeys
from lead_protocol.store.folder import FolderStore
from lead_trainer.commands.runs import loss_history
from lead_trainer.engine.checkpoints.attempt_fence import start_attempt
from lead_trainer.report.event_mirror import EventMirror
from lead_trainer.report.tensorboard import EventFile

UIDS = ("0a8f6f0e-0001", "1b8f6f0e-0002")


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "bucket")


@pytest.fixture
def mirror(store: FolderStore, tmp_path: Path) -> EventMirror:
    return EventMirror(store, "team-a", tmp_path / "shown")


def an_attempt(store: FolderStore, tmp_path: Path, name: str, uid: str, stage: str = "pretrain") -> EventFile:
    """An attempt of a run in namespace team-a, claimed as a pod claims it, with its event file open."""
    keys = InstanceKeys("team-a", uid, stage, 0)
    start_attempt(store, keys, 1, "pod", run=name)
    for step in range(3):
        store.create(f"{keys.checkpoint(step, 1, 'n')}model.pth", b"weights")
    return EventFile(tmp_path / uid / stage, store, keys.tensorboard_prefix, attempt=1, first_step=0, on=True)


def log_epoch(events: EventFile, step: int, loss: float) -> None:
    events.scalars({"epoch/loss": loss}, step)
    events.upload()


def shown(tmp_path: Path) -> dict[str, list[tuple[int, float]]]:
    """Returns the curve of the loss of each run, as TensorBoard reads the folder."""
    runs = EventMultiplexer()
    runs.AddRunsFromDirectory(str(tmp_path / "shown"))
    runs.Reload()
    return {run: [(event.step, event.value) for event in runs.Scalars(run, "epoch/loss")] for run in runs.Runs()}


def test_runs_are_shown_by_name_stage_and_seed_and_grow(
    store: FolderStore, mirror: EventMirror, tmp_path: Path
) -> None:
    pretrain = an_attempt(store, tmp_path, "drive", UIDS[0])
    log_epoch(pretrain, 10, 4.0)
    mirror.refresh()
    file = next((tmp_path / "shown/drive/pretrain-s0").iterdir())
    inode = file.stat().st_ino
    log_epoch(pretrain, 20, 2.0)
    log_epoch(an_attempt(store, tmp_path, "drive", UIDS[0], "posttrain"), 5, 1.0)
    assert mirror.refresh() > 0
    assert shown(tmp_path) == {"drive/pretrain-s0": [(10, 4.0), (20, 2.0)], "drive/posttrain-s0": [(5, 1.0)]}
    assert file.stat().st_ino == inode
    assert mirror.refresh() == 0


def test_two_runs_of_one_name_stay_two_curves(store: FolderStore, mirror: EventMirror, tmp_path: Path) -> None:
    log_epoch(an_attempt(store, tmp_path, "drive", UIDS[0]), 10, 4.0)
    mirror.refresh()
    log_epoch(an_attempt(store, tmp_path, "drive", UIDS[1]), 10, 3.0)
    mirror.refresh()
    assert shown(tmp_path) == {f"drive {UIDS[0]}/pretrain-s0": [(10, 4.0)], f"drive {UIDS[1]}/pretrain-s0": [(10, 3.0)]}


def test_another_namespace_is_not_shown(store: FolderStore, tmp_path: Path) -> None:
    log_epoch(an_attempt(store, tmp_path, "drive", UIDS[0]), 10, 4.0)
    assert EventMirror(store, "team", tmp_path / "shown").refresh() == 0


@pytest.mark.parametrize(
    "record", [b"", b"[]", b"[" * 100_000, b'{"run": 3}', json.dumps({"run": "../../etc"}).encode(), b'{"run": "A b"}']
)
def test_a_record_that_tells_no_name_leaves_the_uid(
    store: FolderStore, mirror: EventMirror, tmp_path: Path, record: bytes
) -> None:
    log_epoch(an_attempt(store, tmp_path, "drive", UIDS[0]), 10, 4.0)
    store.put(InstanceKeys("team-a", UIDS[0], "pretrain", 0).attempt(1), record)
    mirror.refresh()
    assert set(shown(tmp_path)) == {f"{UIDS[0]}/pretrain-s0"}


@pytest.mark.parametrize("key", ["tensorboard/notes.txt", "tensorboard/events.out.tfevents.a b"])
def test_other_objects_are_left_out(store: FolderStore, mirror: EventMirror, tmp_path: Path, key: str) -> None:
    store.put(f"runs/team-a/{UIDS[0]}/pretrain-s0/{key}", b"x")
    store.put(f"runs/team-a/{UIDS[0]}/no stage/{key}", b"x")
    assert mirror.refresh() == 0
    assert not (tmp_path / "shown").exists()


def test_the_course_of_a_run_is_that_of_the_stage_that_it_began_last(store: FolderStore, tmp_path: Path) -> None:
    for stage, loss in (("pretrain", 0.5), ("posttrain", 0.25)):
        log_epoch(an_attempt(store, tmp_path / stage, "drive", "uid-1", stage), 1, loss)
    begun = [{"name": "pretrain", "seed": 0, "attempt": 2}, {"name": "posttrain", "seed": 0, "attempt": 1}]
    run = {"metadata": {"namespace": "team-a", "uid": "uid-1"}, "status": {"stages": begun}}
    assert loss_history(store, run) == [0.25]
    run["status"] = {"stages": [begun[0], {**begun[1], "attempt": 0}]}
    assert loss_history(store, run) == [0.5]
    assert loss_history(store, {**run, "status": {}}) == []
