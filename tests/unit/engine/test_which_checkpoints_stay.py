"""Retention: the newest, the best by the metric of the run, every n-th epoch, the final one alone."""

import re
import subprocess
from pathlib import Path

import pytest

from lead_protocol.checkpoint_retention import expendable
from lead_protocol.job import CheckpointPolicy
from lead_protocol.manifests import CheckpointManifest
from lead_protocol.store.folder import FolderStore
from lead_testing.toy_jobs import KEYS, a_toy_job, manifests
from lead_testing.toy_runs import train_here
from lead_trainer.engine.checkpoints.retention import Retention
from lead_trainer.engine.checkpoints.revision import VARIABLE, git_revision


def a_manifest(step: int, metrics: dict[str, float], **changes: object) -> CheckpointManifest:
    values = {
        "run_uid": "u", "stage": "train", "seed": 0, "attempt": 1, "nonce": "n", "step": step, "epoch": step,
        "step_in_epoch": 0, "parent_sha256": None, "recipe": "toy", "config_sha256": "0" * 64, "dataset_digests": [],
        "world_size": 1, "torch_version": "2", "parameters_sha256": "0" * 64, "files": {}, "metrics": metrics,
        "saved_at": "",
    }  # fmt: skip
    return CheckpointManifest.model_validate(values | changes)


def kept(manifests: list[CheckpointManifest], **policy: int) -> list[int]:
    gone = expendable(list(reversed(manifests)), **policy)
    return [manifest.step for manifest in manifests if manifest not in gone]


def test_the_best_are_ranked_by_the_metric_and_direction_of_the_newest_manifest() -> None:
    scores = [0.1, 0.9, 0.3, 0.8, 0.2, 0.4]
    by_score = {"best_by": "val/f1", "best_is_greatest": True}
    run = [a_manifest(n, {"loss": n, "val/f1": score}, **by_score) for n, score in enumerate(scores, start=1)]
    assert kept(run, keep_last=1, keep_best=2) == [2, 4, 5, 6]
    assert kept([a_manifest(n, {"loss": -n}) for n in range(1, 7)], keep_last=2, keep_best=1) == [5, 6]


def test_a_mean_of_half_an_epoch_is_no_candidate_but_a_validation_is() -> None:
    half = {"step_in_epoch": 3}
    losses = [a_manifest(1, {"loss": 0.1}, **half), *(a_manifest(n, {"loss": 1.0}) for n in (2, 3, 4))]
    assert kept(losses, keep_last=1, keep_best=1) == [3, 4]
    tested = [a_manifest(1, {"val/loss": 0.1}, best_by="val/loss", **half),
              *(a_manifest(n, {"val/loss": 1.0}, best_by="val/loss") for n in (2, 3, 4))]  # fmt: skip
    assert kept(tested, keep_last=1, keep_best=1) == [1, 3, 4]


def test_every_nth_epoch_stays() -> None:
    run = [a_manifest(n, {"loss": -n}) for n in range(1, 8)]
    assert kept(run, keep_last=1, keep_best=1, keep_every_epochs=3) == [3, 6, 7]


@pytest.mark.parametrize(("policy", "epochs"), [
    (CheckpointPolicy(every_epochs=0), [6]),
    (CheckpointPolicy(every_epochs=2, keep_last=2, keep_best=0), [4, 6]),
    (CheckpointPolicy(every_epochs=2, keep_last=9), [2, 4, 6]),
    (CheckpointPolicy(keep_last=2, keep_best=0, keep_every_epochs=3), [3, 5, 6]),
])  # fmt: skip
def test_a_run_of_six_epochs_leaves_exactly_what_its_policy_says(
    tmp_path: Path, policy: CheckpointPolicy, epochs: list[int]
) -> None:
    store = FolderStore(tmp_path / "store")
    job = a_toy_job(epochs=6, config={"samples": 16}).model_copy(update={"checkpoint": policy})
    train_here(store, tmp_path, job)
    assert [manifest.epoch for manifest in manifests(store)] == epochs
    assert [manifest.final for manifest in manifests(store)] == [epoch == 6 for epoch in epochs]


def test_a_spoiled_manifest_stays_and_the_others_go_as_ever(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = FolderStore(tmp_path / "store")
    job = a_toy_job(epochs=3, config={"samples": 16})
    train_here(store, tmp_path, job)
    (spoiled, *_), policy = store.list(KEYS.manifests_prefix), CheckpointPolicy(keep_last=2, keep_best=0)
    store.put(spoiled.key, b"{}")
    retention = Retention(store, KEYS, policy)
    assert retention.apply() == [] and retention.apply() == []
    longer = a_toy_job(2, epochs=5, config={"samples": 16}).model_copy(update={"checkpoint": policy})
    train_here(store, tmp_path, longer)
    left = [info.key for info in store.list(KEYS.manifests_prefix)]
    assert left == [spoiled.key, KEYS.manifest(8, 0), KEYS.manifest(10, 0)]
    printed = capsys.readouterr()
    assert (printed.out + printed.err).count("its manifest is corrupt") == 2  # once each time the run is started


def test_a_better_epoch_is_saved_although_none_is_due(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    policy = CheckpointPolicy(every_epochs=0, on_best=True, keep_last=99)
    job = a_toy_job(epochs=6, config={"samples": 16, "validation_samples": 8})
    train_here(store, tmp_path, job.model_copy(update={"checkpoint": policy}))
    saved = manifests(store)
    values = [manifest.metrics["val/loss"] for manifest in saved[:-1]]
    assert len(values) > 1 and values == sorted(values, reverse=True) and saved[-1].epoch == 6


def test_a_checkpoint_names_the_code_that_wrote_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git_revision.cache_clear()
    monkeypatch.setenv(VARIABLE, "0123abc")
    store = FolderStore(tmp_path / "store")
    train_here(store, tmp_path, a_toy_job(epochs=1))
    assert manifests(store)[-1].git_revision == "0123abc"
    monkeypatch.delenv(VARIABLE)
    git_revision.cache_clear()
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True)
    if asked.returncode == 0:
        assert re.fullmatch(rf"{asked.stdout.strip()}(-dirty)?", git_revision())
    git_revision.cache_clear()
