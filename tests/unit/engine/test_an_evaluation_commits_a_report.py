"""A stage of kind Evaluation: the numbers that training logged, to the bit, and a report in place of a checkpoint."""

import json
from pathlib import Path
from typing import Any

import pytest

from lead_protocol.exit_codes import ExitCode
from lead_protocol.job import InitFrom, TrainJob
from lead_protocol.manifests import CheckpointManifest
from lead_protocol.object_keys import InstanceKeys
from lead_protocol.progress_record import parse_progress
from lead_protocol.store.folder import FolderStore
from lead_testing.toy_jobs import KEYS, UID, a_toy_job, manifests
from lead_testing.toy_runs import train_group, train_here
from lead_trainer.errors import BadConfig, Fenced, NoValidCheckpoint

CONFIG = {"validation_samples": 20}
TEST = InstanceKeys("team-a", UID, "test", 0)
WEIGHTS = InitFrom(manifests_prefix=KEYS.manifests_prefix)


def an_evaluation(attempt: int = 1, *, epochs: int = 2, **fields: Any) -> TrainJob:
    wanted: dict[str, Any] = {"config": CONFIG, "init_from": WEIGHTS, **fields}
    return a_toy_job(attempt, epochs=epochs, stage="test", evaluates=True, **wanted)


def trained(folder: Path, **config: Any) -> FolderStore:
    store = FolderStore(folder / "store")
    train_here(store, folder / "train", a_toy_job(epochs=2, config={**CONFIG, **config}))
    return store


def files_of(store: FolderStore, manifest: CheckpointManifest) -> dict[str, bytes]:
    return {name: store.get(file.key, max_bytes=10**6) for name, file in manifest.files.items()}


def test_an_evaluation_finds_the_logged_numbers_and_commits_its_report_alone(tmp_path: Path) -> None:
    store = trained(tmp_path, ema_decay=0.9)
    train_here(store, tmp_path / "test", an_evaluation(config={**CONFIG, "ema_decay": 0.9}))
    (committed,), weights = manifests(store, TEST), manifests(store)[-1]
    logged = {name: value for name, value in weights.metrics.items() if name.startswith("val/")}
    assert committed.metrics == logged and set(logged) == {"val/loss", "val/bias", "val/rmse"}
    assert (committed.final, committed.is_report, committed.epoch, committed.step) == (True, True, 2, 3)
    files = files_of(store, committed)
    assert set(files) == {"report.json", "report.md", "config.json"}
    report = json.loads(files["report.json"])
    assert report["differing"] == [] and report["trained"]["step"] == weights.step == 12
    assert report["weights"] == report["trained"]["validated"] == "ema_0001.pth"
    assert b"all 3 logged numbers are found again, bit for bit" in files["report.md"]


def test_what_an_evaluation_reports_is_its_batches_and_its_metrics(tmp_path: Path) -> None:
    store = trained(tmp_path)
    train_here(store, tmp_path / "test", an_evaluation())
    last = parse_progress((tmp_path / "test/termination-log").read_bytes())
    assert last is not None and (last.phase, last.step, last.steps, last.epoch, last.epochs) == ("Done", 3, 3, 2, 2)
    assert last.metrics == manifests(store, TEST)[0].metrics and last.loss == last.metrics["val/loss"]


def test_ranks_measure_together_what_ranks_trained_also_after_one_is_killed(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    assert train_group(tmp_path, a_toy_job(epochs=1, config=CONFIG, processes=2), 2) == [0, 0]
    assert -9 in train_group(tmp_path, an_evaluation(epochs=1, processes=2), 2, signal="KILL:v2:0")
    assert manifests(store, TEST) == []
    assert train_group(tmp_path, an_evaluation(attempt=2, epochs=1, processes=2), 2) == [0, 0]
    (committed,), weights = manifests(store, TEST), manifests(store)[-1]
    assert committed.metrics.items() <= weights.metrics.items() and committed.world_size == committed.attempt == 2
    assert json.loads(files_of(store, committed)["report.json"])["differing"] == []


def test_a_stopped_evaluation_commits_nothing_and_the_next_attempt_measures_again(tmp_path: Path) -> None:
    store = trained(tmp_path)
    assert train_here(store, tmp_path / "test", an_evaluation(), stop_in_validation=2) is ExitCode.STOPPED
    assert manifests(store, TEST) == []
    assert train_here(store, tmp_path / "test", an_evaluation(attempt=2)) is ExitCode.DONE
    assert [one.attempt for one in manifests(store, TEST)] == [2]


def test_a_report_that_is_committed_is_measured_once(tmp_path: Path) -> None:
    store = trained(tmp_path)
    train_here(store, tmp_path / "test", an_evaluation())
    (first,) = manifests(store, TEST)
    # Nothing is evaluated: the first batch would raise the stop flag.
    assert train_here(store, tmp_path / "test", an_evaluation(attempt=2), stop_in_validation=1) is ExitCode.DONE
    assert manifests(store, TEST) == [first]


def test_a_late_attempt_does_not_commit_beside_its_successor(tmp_path: Path) -> None:
    store = trained(tmp_path)
    train_here(store, tmp_path / "test", an_evaluation(attempt=2))
    with pytest.raises(Fenced):
        train_here(store, tmp_path / "late", an_evaluation(attempt=1))
    assert [one.attempt for one in manifests(store, TEST)] == [2]


def test_a_damaged_report_is_set_aside_and_measured_again(tmp_path: Path) -> None:
    store = trained(tmp_path)
    train_here(store, tmp_path / "test", an_evaluation())
    (tmp_path / "store" / manifests(store, TEST)[0].files["report.md"].key).write_bytes(b"cut")
    train_here(store, tmp_path / "test", an_evaluation(attempt=2))
    damaged, again = manifests(store, TEST)
    assert (damaged.attempt, again.attempt) == (1, 2) and again.metrics == damaged.metrics
    assert files_of(store, again)["report.md"] != b"cut"


def test_weights_without_a_validation_split_cannot_be_measured(tmp_path: Path) -> None:
    store = trained(tmp_path)
    with pytest.raises(BadConfig, match="the config has no validation split to measure on"):
        train_here(store, tmp_path / "test", an_evaluation(config={}))


@pytest.mark.parametrize("begins", ["init_from", "resume_from"])
def test_no_training_begins_with_a_report(tmp_path: Path, begins: str) -> None:
    store = trained(tmp_path)
    train_here(store, tmp_path / "test", an_evaluation())
    job = a_toy_job(stage="next", **{begins: InitFrom(manifests_prefix=TEST.manifests_prefix)})
    with pytest.raises(NoValidCheckpoint, match="it is the report of an evaluation and holds no"):
        train_here(store, tmp_path / "next", job)
