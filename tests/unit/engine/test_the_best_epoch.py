"""Validation is exact over ranks, the best epoch is found by the metric asked for, and early stopping ends a stage."""

import json
from pathlib import Path

import pytest
import torch

from lead_protocol.exit_codes import ExitCode
from lead_protocol.job import CheckpointPolicy
from lead_protocol.store.folder import FolderStore
from lead_testing.toy_jobs import KEYS, a_toy_job, manifests, progress_record
from lead_testing.toy_recipe import RECIPE, ToyConfig
from lead_testing.toy_runs import train_group, train_here
from lead_trainer.contract.step import StepContext
from lead_trainer.engine.step.ranking import Ranking
from lead_trainer.errors import BadConfig


def test_the_validation_of_a_checkpoint_is_that_of_its_weights_over_the_whole_split(tmp_path: Path) -> None:
    config = {"batch_size": 12, "samples": 24, "validation_samples": 7, "ema_decay": 0.5}
    assert train_group(tmp_path, a_toy_job(epochs=2, config=config), 2) == [ExitCode.DONE] * 2
    last = manifests(FolderStore(tmp_path / "store"))[-1]
    recipe, toy = RECIPE, ToyConfig(**config)
    model = recipe.model(toy, {})
    state = torch.load(tmp_path / "store" / last.files[last.parts["ema"]].key, weights_only=True)
    model.load_state_dict(state)
    assert recipe.validation is not None
    source = recipe.validation.samples(toy, {})
    assert source is not None
    batch = recipe.collate([source.load(int(index), 0) for index in source.epoch_draw(0)])
    with torch.no_grad():
        total, count = recipe.validation.evaluate(model.eval(), batch, StepContext(config=toy)).totals["loss"]
    assert count == 7  # an odd number, over two ranks
    assert last.metrics["val/loss"] == pytest.approx(float(total) / 7, rel=1e-6)
    assert last.metrics["val/rmse"] == pytest.approx(last.metrics["val/loss"] ** 0.5, rel=1e-9)


def test_patience_ends_a_stage_and_is_not_forgotten_by_a_restart(tmp_path: Path) -> None:
    config = {"validation_samples": 8, "patience_epochs": 2, "best_metric": "val/loss", "best_is_greatest": True}
    whole, store = FolderStore(tmp_path / "whole"), FolderStore(tmp_path / "store")
    train_here(whole, tmp_path / "a", a_toy_job(epochs=30, config=config))
    end = manifests(whole)[-1]
    loop = json.loads(whole.get(end.files[f"loop_{end.epoch - 1:04d}.json"].key, max_bytes=10**5))
    assert end.epoch < 30 and loop["best"]["epochs_since"] == 2 and loop["best"]["epoch"] == end.epoch - 2
    attempt = 1
    while train_here(store, tmp_path / "b", a_toy_job(attempt, epochs=30, config=config), stop_in_call=6):
        attempt += 1
    assert attempt > 2 and manifests(store)[-1].parameters_sha256 == end.parameters_sha256
    train_here(store, tmp_path / "b", a_toy_job(attempt + 1, epochs=30, config=config))
    assert manifests(store)[-1].step == end.step  # a stage that stopped early is done
    assert [manifest.final for manifest in manifests(whole)] == [False] * (len(manifests(whole)) - 1) + [True]
    record = progress_record(whole)
    assert record.phase == "Done"
    assert (record.best_by, record.best_metric) == ("val/loss", loop["best"]["value"])


def test_a_stage_that_had_ended_early_without_saying_so_says_so_when_it_is_started_again(tmp_path: Path) -> None:
    config = {"validation_samples": 8, "patience_epochs": 1, "best_metric": "val/loss", "best_is_greatest": True}
    store = FolderStore(tmp_path / "store")
    train_here(store, tmp_path, a_toy_job(epochs=30, config=config))
    silent = manifests(store)[-1].model_copy(update={"final": False})  # as a trainer without the field wrote it
    store.put(KEYS.manifest(silent.step, 0), silent.model_dump_json().encode())
    for attempt in (2, 3):
        train_here(store, tmp_path, a_toy_job(attempt, epochs=30, config=config))
    *_, before, end = manifests(store)
    assert (before, end.final, end.attempt) == (silent, True, 2)  # the third found nothing to do
    assert (end.step, end.parameters_sha256, end.metrics) == (silent.step, silent.parameters_sha256, silent.metrics)
    assert not list(store.list(KEYS.quarantine_prefix))  # it is outdone, not spoiled


def test_a_value_that_is_missing_or_not_finite_is_never_the_best() -> None:
    ranking = Ranking("val/f1", greatest=True, patience_epochs=2)
    assert ranking.judge({"val/f1": 0.5}, 1, 1) and not ranking.judge({"val/f1": float("nan")}, 2, 2)
    assert not ranking.stops_early
    assert not ranking.judge({"loss": 1.0}, 3, 3) and ranking.stops_early and ranking.best.epoch == 1


@pytest.mark.parametrize(("config", "words"), [
    ({"best_metric": "val/loss"}, "this run validates on nothing"),
    ({"best_metric": "val loss!"}, "expected the tag of a metric"),
    ({"ema_decay": 1.5}, "ema_decay: found 1.5"),
    ({"gradient_accumulation_steps": 0}, "gradient_accumulation_steps: found 0"),
])  # fmt: skip
def test_what_a_stage_cannot_do_is_refused(tmp_path: Path, config: dict[str, object], words: str) -> None:
    with pytest.raises(BadConfig, match=words):
        train_here(FolderStore(tmp_path / "store"), tmp_path, a_toy_job(config=config))


def test_a_few_samples_are_learned_by_heart(tmp_path: Path) -> None:
    config = {"overfit_samples": 3, "lr": 0.05, "dropout": 0.0, "validation_samples": 5, "freeze_batchnorm": True}
    store = FolderStore(tmp_path / "store")
    job = a_toy_job(epochs=300, config=config | {"batch_size": 6})
    train_here(store, tmp_path, job.model_copy(update={"checkpoint": CheckpointPolicy(every_epochs=0)}))
    (final,) = manifests(store)  # and no other
    history = json.loads(store.get(final.files["loop_0299.json"].key, max_bytes=10**6))["history"]
    assert history[-1]["loss"] < 0.01 * history[0]["loss"]
    assert history[-1]["val/loss"] < 0.01 * history[0]["val/loss"]  # of the same samples
