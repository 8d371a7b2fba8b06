"""Validation leaves out what is no number, waits for a store that is away, is told of, and hears that it must stop."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from lead_protocol.exit_codes import ExitCode
from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import StoreUnavailable
from lead_testing.toy_jobs import KEYS, a_toy_job, manifests, progress_record
from lead_testing.toy_recipe import RECIPE, ToySamples
from lead_testing.toy_runs import toy_recipe_with, train_group, train_here
from lead_trainer.contract.samples import Batch, Sample
from lead_trainer.contract.step import StepContext
from lead_trainer.contract.validation import Evaluation
from lead_trainer.engine.reporting.progress import ProgressWriter
from lead_trainer.errors import BadData

VALIDATES = {"batch_size": 4, "samples": 8, "validation_samples": 8}
SPOILED = 10_003  # the fourth sample of the validation split, in its first batch


def test_a_batch_that_is_not_finite_is_left_out_and_told(tmp_path: Path) -> None:
    store, clean = FolderStore(tmp_path / "store"), FolderStore(tmp_path / "clean")
    train_here(store, tmp_path / "a", a_toy_job(epochs=2, config={**VALIDATES, "poisoned_sample": SPOILED}))
    train_here(clean, tmp_path / "b", a_toy_job(epochs=2, config=VALIDATES))
    spoiled, whole = manifests(store), manifests(clean)
    assert [one.parameters_sha256 for one in spoiled] == [one.parameters_sha256 for one in whole]
    assert 0 < spoiled[-1].metrics["val/loss"] != whole[-1].metrics["val/loss"]
    (advisory,) = progress_record(store).advisories
    assert advisory.rule == "validation-not-finite" and "1 of 2 batches" in advisory.message


def test_an_epoch_whose_validation_is_no_number_is_saved_without_one(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    config = {"samples": 8, "validation_samples": 5, "poisoned_sample": SPOILED}
    train_here(store, tmp_path, a_toy_job(epochs=2, config=config))
    assert [(one.epoch, sorted(one.metrics)) for one in manifests(store)] == [
        (1, ["loss", "loss_plane"]),
        (2, ["loss", "loss_plane"]),
    ]
    record = progress_record(store)
    assert record.best_metric is None and "no val/loss" in record.advisories[0].message


def test_a_split_in_which_nothing_counts_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = RECIPE.validation
    assert plain is not None

    def counts_nothing(model: torch.nn.Module, batch: Batch, context: StepContext[Any]) -> Evaluation:
        found = plain.evaluate(model, batch, context)
        return Evaluation({tag: (total * 0, 0) for tag, (total, _) in found.totals.items()})

    spoiled = toy_recipe_with(validation=replace(plain, evaluate=counts_nothing))
    with spoiled, pytest.raises(BadData, match="counts no sample for `loss`"):
        train_here(FolderStore(tmp_path / "store"), tmp_path, a_toy_job(epochs=1, config=VALIDATES))


def test_a_store_that_is_away_for_a_moment_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, away = ToySamples.load, [SPOILED]

    def load(self: ToySamples, index: int, epoch: int) -> Sample:
        if index in away:
            away.remove(index)
            raise StoreUnavailable("no answer")
        return plain(self, index, epoch)

    monkeypatch.setattr(ToySamples, "load", load)
    store = FolderStore(tmp_path / "store")
    train_here(store, tmp_path, a_toy_job(epochs=1, config=VALIDATES))
    assert not away and "val/loss" in manifests(store)[-1].metrics


def test_each_batch_of_a_long_validation_is_told_as_something_else_than_a_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, told = ProgressWriter.update, []

    def update(self: ProgressWriter, **fields: object) -> None:
        plain(self, **fields)  # type: ignore[arg-type]
        told.append(self.record)

    monkeypatch.setattr(ProgressWriter, "update", update)
    train_here(FolderStore(tmp_path / "store"), tmp_path, a_toy_job(epochs=1, config=VALIDATES))
    said = [(one.phase, one.message) for one in told if one.message.startswith("validation")]
    # While the step stays the same, only another phase than Training counts as an advance.
    assert said == [("Checkpointing", "validation: batch 1 of 2"), ("Checkpointing", "validation: batch 2 of 2")]
    assert told[-1].phase == "Done" and told[-1].message == ""


def test_a_run_that_is_preempted_while_it_validates_trains_no_step_again(tmp_path: Path) -> None:
    whole, store = FolderStore(tmp_path / "whole"), FolderStore(tmp_path / "store")
    config = {**VALIDATES, "best_metric": "val/loss"}
    train_here(whole, tmp_path / "a", a_toy_job(epochs=2, config=config))
    stops = []
    for attempt, (step, batch) in enumerate([(2, 0), (0, 1), (2, 0), (0, 1), (0, 0)], 1):
        job = a_toy_job(attempt, epochs=2, config=config)
        code = train_here(store, tmp_path / "b", job, stop_in_call=step, stop_in_validation=batch)
        newest = manifests(store)[-1]
        stops.append((code, newest.step, newest.epoch, newest.step_in_epoch))
    # The stop in the last step of an epoch comes before its validation, the next one in the first of two batches.
    assert stops == [
        (ExitCode.STOPPED, 2, 0, 2),
        (ExitCode.STOPPED, 2, 0, 2),
        (ExitCode.STOPPED, 4, 1, 2),
        (ExitCode.STOPPED, 4, 1, 2),
        (ExitCode.DONE, 4, 2, 0),
    ]
    assert not list(store.list(KEYS.quarantine_prefix))
    ends = [one for one in manifests(store) if not one.step_in_epoch]
    for one, expected in zip(ends, manifests(whole), strict=True):
        told = {"step", "epoch", "final", "parameters_sha256", "metrics"}
        assert one.model_dump(include=told) == expected.model_dump(include=told)


def test_ranks_with_unequal_shares_stop_together_whichever_hears_of_it(tmp_path: Path) -> None:
    config = {"batch_size": 12, "samples": 24, "validation_samples": 13}  # two batches and one
    job = a_toy_job(epochs=1, config=config)
    assert train_group(tmp_path / "whole", job, 2) == [ExitCode.DONE] * 2
    store = FolderStore(tmp_path / "store")
    assert train_group(tmp_path, job, 2, signal="TERM:v1:1") == [ExitCode.STOPPED] * 2
    (stopped,) = manifests(store)
    assert (stopped.step, stopped.epoch, stopped.step_in_epoch) == (2, 0, 2)
    assert train_group(tmp_path, a_toy_job(2, epochs=1, config=config), 2) == [ExitCode.DONE] * 2
    end, expected = manifests(store)[-1], manifests(FolderStore(tmp_path / "whole/store"))[-1]
    assert (end.final, end.parameters_sha256) == (True, expected.parameters_sha256)
    assert end.metrics == expected.metrics
