"""The guide's advice: each rule speaks for a made course of a run, and not for a good one."""

from collections.abc import Sequence

import pytest

from lead_testing.small_world import small_config
from lead_trainer.engine.reporting.watch import BATCHES_PER_S, ENGINE_RULES, GPU_SHARE, WAITING, advise
from lead_trainer.recipes.world.advice import warnings, watch_rules
from lead_trainer.recipes.world.recipe import RECIPE

Course = Sequence[dict[str, float]]
CONFIG = small_config(epochs=100, loss__pred_from_epoch_share=0.1)


def course(epochs: int, **last: float) -> list[dict[str, float]]:
    """A training that goes well, its last epoch changed by `last` with `_` for `/`."""
    found = [
        {"loss": 1.0 / epoch, "train/psnr": 21 + epoch / 10, "val/psnr": 20.5 + epoch / 10, "val/pred_psnr": 24.0,
         "val/mean_picture_psnr": 21.0, WAITING: 0.05}
        for epoch in range(1, epochs + 1)
    ]  # fmt: skip
    found[-1] |= {name.replace("_", "/", 1): value for name, value in last.items()}
    return found


def said(history: Course) -> dict[str, str]:
    """What is reported after the last epoch, by rule."""
    rules = [*ENGINE_RULES, *watch_rules(CONFIG)]
    return {advisory.rule: advisory.message for advisory in advise(rules, history, len(history))}


def test_a_good_course_brings_nothing_but_the_stages() -> None:
    spoken = {epoch: list(said(course(epoch))) for epoch in range(1, 100)}
    assert {epoch: rules for epoch, rules in spoken.items() if rules} == {
        10: ["stage-learning"], 50: ["stage-refinement"],
    }  # fmt: skip
    assert "expects 20 to 26 dB" in said(course(10))["stage-learning"]


@pytest.mark.parametrize(
    ("rule", "history", "words"),
    [
        ("low-psnr", course(10, train_psnr=19.0), "optimizer.lr=5e-4"),
        ("weak-psnr", course(50, val_psnr=24.0), "25 dB"),
        ("gap", course(20, train_psnr=28.0, val_psnr=24.0), "loss.latent_reg_weight=0.05, model.dynamics.dropout=0.2"),
        ("collapsed", course(20, val_pred_psnr=21.2), "latent_norm=batch"),
        ("slow-loading", [{**course(3)[-1], WAITING: 0.5}], "data.num_workers=8"),
        ("slow-loading", [{**course(3)[-1], GPU_SHARE: 0.6, BATCHES_PER_S: 9.0}], "busy for 60%"),
        ("slow-loading", [{**course(3)[-1], GPU_SHARE: 0.9, BATCHES_PER_S: 1.5}], "1.5 batches a second"),
        ("lost-loss", [{WAITING: 0.0}], "optimizer.lr=5e-5"),
        ("plateau", [{"loss": 1.0}] * 12, "optimizer.lr=5e-4"),
        ("oscillation", [{"loss": 1.0 + epoch % 2} for epoch in range(8)], "too high"),
        ("no-better", [{"loss": 1 / n, "val/psnr": 26.0 - n / 100} for n in range(1, 12)], "for 10 epochs"),
    ],
)  # fmt: skip
def test_w_29_to_w_34_a_rule_speaks_with_the_guides_numbers(rule: str, history: Course, words: str) -> None:
    rules = {one.name: one for one in [*ENGINE_RULES, *watch_rules(CONFIG)]}
    sentence = rules[rule].check(history)
    assert sentence is not None and words in sentence and len(sentence) <= 240


def test_before_anything_is_predicted_nothing_has_collapsed() -> None:
    assert "collapsed" not in said(course(10, val_pred_psnr=21.2))


def test_a_cpu_is_not_blamed_for_slow_batches() -> None:
    assert said([{"loss": 1.0, WAITING: 0.0, BATCHES_PER_S: 0.5}]) == {}


def test_a_rate_that_no_part_has_is_warned_of() -> None:
    (warning,) = warnings(RECIPE.config({"optimizer": {"lr": 3e-4}}, "base"))
    assert warning.startswith("optimizer.lr=0.0003 changes nothing: encoder_lr, dynamics_lr, decoder_lr are set")
    parts = {"encoder_lr": None, "dynamics_lr": None, "decoder_lr": None}
    assert warnings(RECIPE.config({"optimizer": {"lr": 3e-4, **parts}}, "base")) == []
    assert warnings(RECIPE.config({}, "base")) == []
