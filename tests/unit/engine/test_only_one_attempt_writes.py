"""Attempts are fenced by create-only objects; two that race for one step leave one sound checkpoint of it."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lead_protocol.exit_codes import ExitCode
from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import StoreDenied, StoreUnavailable
from lead_testing.toy_jobs import KEYS, a_toy_job, manifests
from lead_testing.toy_recipe import RECIPE, ToyConfig
from lead_testing.toy_runs import toy_recipe_installed, train_here
from lead_trainer.contract.files import names_by_epoch
from lead_trainer.engine.attempt import given
from lead_trainer.engine.attempt.location import RunLocation
from lead_trainer.engine.attempt.run import run_attempt
from lead_trainer.engine.checkpoints.attempt_fence import start_attempt
from lead_trainer.engine.checkpoints.commit import Checkpointer
from lead_trainer.engine.checkpoints.retry_budget import RetryBudget
from lead_trainer.engine.group.ddp import Group
from lead_trainer.engine.group.stop import StopFlag
from lead_trainer.engine.step.batch_norms import BatchNorms
from lead_trainer.engine.step.clip import Clipper
from lead_trainer.engine.step.optimizers import Optimizers
from lead_trainer.engine.step.ranking import Ranking
from lead_trainer.engine.step.state import TrainState, merged
from lead_trainer.errors import Fenced
from lead_trainer.world import World


class InterferingStore(FolderStore):
    """Calls `interfere` once, just before the manifest of `step` is created."""

    def __init__(self, root: Path, step: int, interfere: object) -> None:
        super().__init__(root)
        self.step, self.interfere = step, interfere

    def create(self, key: str, data: bytes) -> bool:
        if key == KEYS.manifest(self.step, 0) and self.interfere is not None:
            interfere, self.interfere = self.interfere, None
            interfere()  # type: ignore[operator]
        return super().create(key, data)


def test_an_attempt_that_is_taken_is_refused(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    start_attempt(store, KEYS, 1, "pod-a")
    with pytest.raises(Fenced, match="already owned"):
        train_here(store, tmp_path, a_toy_job(1))
    assert manifests(store) == []


def test_an_outdated_attempt_is_refused(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    start_attempt(store, KEYS, 2, "pod-b")
    with pytest.raises(Fenced, match=r"attempt 2 .* has taken over from attempt 1"):
        train_here(store, tmp_path, a_toy_job(1))


def test_an_attempt_that_is_overtaken_commits_nothing_more(tmp_path: Path) -> None:
    plain = FolderStore(tmp_path / "store")

    def a_higher_attempt_commits_this_step() -> None:
        train_here(plain, tmp_path / "other", a_toy_job(2, epochs=2))

    with pytest.raises(Fenced, match="attempt 2"):
        train_here(InterferingStore(tmp_path / "store", 12, a_higher_attempt_commits_this_step), tmp_path, a_toy_job(1))
    assert [(manifest.step, manifest.attempt) for manifest in manifests(plain)] == [(6, 1), (12, 2)]


def test_a_late_commit_of_an_older_attempt_is_adopted(tmp_path: Path) -> None:
    reference, plain = FolderStore(tmp_path / "reference/store"), FolderStore(tmp_path / "store")
    train_here(reference, tmp_path / "reference", a_toy_job(1))

    def an_older_attempt_commits_this_step() -> None:
        for info in reference.list(f"{KEYS.prefix}checkpoints/{12:012d}/"):
            plain.create(info.key, reference.get(info.key, max_bytes=10**6))
        plain.create(KEYS.manifest(12, 0), reference.get(KEYS.manifest(12, 0), max_bytes=10**6))

    train_here(InterferingStore(tmp_path / "store", 12, an_older_attempt_commits_this_step), tmp_path, a_toy_job(2))
    assert [(manifest.step, manifest.attempt) for manifest in manifests(plain)] == [(6, 2), (12, 1), (18, 2)]
    assert manifests(plain)[-1].parameters_sha256 == manifests(reference)[-1].parameters_sha256


def test_the_ranks_that_adopt_a_checkpoint_have_the_sums_of_its_epoch_once_together(tmp_path: Path) -> None:
    store, recipe = FolderStore(tmp_path / "store"), RECIPE
    train_here(store, tmp_path, a_toy_job(1, epochs=1, every_steps=4))
    adopted, counts = manifests(store)[0], []
    assert adopted.step_in_epoch == 4
    for rank in range(3):
        model, group = recipe.model(ToyConfig(), {}), SimpleNamespace(world=World(rank, rank, 3, 0, 3))
        state = TrainState(
            model, model, Optimizers(recipe.optimizer(model, ToyConfig())), torch.amp.GradScaler("cpu", enabled=False),
            Clipper(), BatchNorms(model), Ranking("loss"),
        )  # fmt: skip
        known: Any = (group, store, None, lambda at: names_by_epoch(None, at), {}, tmp_path / "scratch", RetryBudget())
        checkpointer = Checkpointer(*known)
        checkpointer._reload(state, adopted)
        counts.append(state.totals.as_pairs())
    assert merged(counts)["loss"][1] == 4


def test_a_spoiled_commit_of_an_older_attempt_is_set_aside(tmp_path: Path) -> None:
    reference, plain = FolderStore(tmp_path / "reference/store"), FolderStore(tmp_path / "store")
    train_here(reference, tmp_path / "reference", a_toy_job(1))

    def an_older_attempt_commits_a_manifest_without_data() -> None:
        plain.create(KEYS.manifest(12, 0), reference.get(KEYS.manifest(12, 0), max_bytes=10**6))

    store = InterferingStore(tmp_path / "store", 12, an_older_attempt_commits_a_manifest_without_data)
    train_here(store, tmp_path, a_toy_job(2))
    assert "does not exist" in json.loads(plain.get(KEYS.quarantine(12, 0), max_bytes=10_000))["reason"]
    assert plain.head(KEYS.manifest(12, 1)) is not None


class OutageStore(FolderStore):
    """Answers nothing for a number of calls, from the first checkpoint on."""

    def __init__(self, root: Path, calls: int) -> None:
        super().__init__(root)
        self.calls = calls

    def create_file(self, key: str, path: Path, *, sha256: str) -> bool:
        self.calls -= 1
        if self.calls >= 0:
            raise StoreUnavailable("no answer")
        return super().create_file(key, path, sha256=sha256)

    def put(self, key: str, data: bytes) -> None:
        raise StoreUnavailable("no answer")  # neither progress nor event files may end a run


def test_an_outage_of_the_store_is_waited_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(given, "RetryBudget", _without_pauses(pauses))
    store = OutageStore(tmp_path / "store", calls=5)
    assert train_here(store, tmp_path, a_toy_job(epochs=1)) == ExitCode.DONE
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0]


def test_an_outage_without_end_gives_up_after_the_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given, "RetryBudget", _without_pauses([], total_s=0.0))
    with pytest.raises(StoreUnavailable):
        train_here(OutageStore(tmp_path / "store", calls=10**6), tmp_path, a_toy_job(epochs=1))
    assert '"phase":"Failed"' in (tmp_path / "termination-log").read_text()


def test_who_is_asked_to_stop_during_an_outage_waits_no_longer_than_its_grace_period(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, pauses = StopFlag(), list[float]()

    def asks_to_stop(pause_s: float) -> None:
        pauses.append(pause_s)
        stop.raised = len(pauses) == 3

    monkeypatch.setattr(given, "RetryBudget", lambda **asked: RetryBudget(pause=asks_to_stop, **asked))
    here = RunLocation(OutageStore(tmp_path / "store", calls=10**9), tmp_path / "scratch")
    job = a_toy_job(epochs=1).model_copy(update={"grace_period_s": 0})
    with toy_recipe_installed(tmp_path), pytest.raises(StoreUnavailable):
        run_attempt(job, here, Group(World(), torch.device("cpu")), stop)
    assert pauses == [0.5, 1.0, 2.0]  # and no further one of half an hour's


def _without_pauses(pauses: list[float], total_s: float = 1800.0) -> Callable[..., RetryBudget]:
    return lambda **asked: RetryBudget(total_s, pause=pauses.append, **asked)


class UndeletableStore(FolderStore):
    """The trainer's credential in a bucket where only the operator may delete."""

    def delete(self, key: str) -> None:
        raise StoreDenied("AccessDenied")


def test_only_the_newest_and_the_best_stay_in_the_store(tmp_path: Path) -> None:
    everything, store = FolderStore(tmp_path / "all/store"), FolderStore(tmp_path / "store")
    train_here(everything, tmp_path / "all", a_toy_job(epochs=6, keep_last=100))
    best = min(manifests(everything), key=lambda manifest: manifest.metrics["loss"]).step
    train_here(store, tmp_path, a_toy_job(epochs=6, keep_last=2))
    kept = {best, 30, 36}
    assert {manifest.step for manifest in manifests(store)} == kept
    prefix = f"{KEYS.prefix}checkpoints/"
    assert {int(info.key.removeprefix(prefix).split("/")[0]) for info in store.list(prefix)} == kept


def test_without_the_right_to_delete_training_goes_on_and_keeps_all(tmp_path: Path) -> None:
    store = UndeletableStore(tmp_path / "store")
    assert train_here(store, tmp_path, a_toy_job(epochs=5, keep_last=2)) == ExitCode.DONE
    assert len(manifests(store)) == 5


def test_a_pod_leaves_old_checkpoints_to_the_operator(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    train_here(store, tmp_path, a_toy_job(epochs=5, keep_last=2), removes_old_checkpoints=False)
    assert len(manifests(store)) == 5
