"""Keys of the recipe `nuplan`: the defaults of its guide, what is refused and by which message, rates by step."""

import math
from typing import Any

import pytest

from lead_trainer.contract.step import Position
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.nuplan.advice import warnings, watch_rules
from lead_trainer.recipes.nuplan.config import NuplanConfig
from lead_trainer.recipes.nuplan.config_values import KEYS
from lead_trainer.recipes.nuplan.schedule import lr_factor


def config(values: dict[str, Any] | None = None, preset: str = "") -> NuplanConfig:
    return KEYS.config(NuplanConfig, values or {}, preset)


def test_n_10_n_15_and_n_27_defaults_are_the_guides() -> None:
    found = config()
    assert found.data.image_size == (540, 960) and config(preset="memory").data.image_size == (384, 640)
    assert found.data.grid_cells == 200 and found.data.pillar_cells == 500
    assert (found.model.modes, found.data.future_steps, found.data.future_step_s) == (2, 8, 0.5)
    assert (found.optimizer.type, found.scheduler.type, found.precision) == ("adamw", "cosine", "fp16")
    assert len(found.data.cameras) == 6 and found.loss.weighting == "static" and not found.loss.imitation


def test_n_28_n_30_and_n_56_what_a_gpu_of_24_gb_holds() -> None:
    found = config()
    assert found.batch_size * found.gradient_accumulation_steps == 4
    assert 4 <= found.num_threads <= 8 and found.prefetch_factor == 2
    assert not any("batch_size" in message for message in warnings(found))
    assert any(
        "batch_size is 16; 2 to 4 fit a GPU of 24 GB" in message for message in warnings(config({"batch_size": 16}))
    )


def test_n_51_an_argument_changes_its_key_alone_and_a_misspelt_one_is_named() -> None:
    changed = config({"optimizer": {"lr": 1e-3}}).model_dump()
    assert changed["optimizer"].pop("lr") == 1e-3
    plain = config().model_dump()
    plain["optimizer"].pop("lr")
    assert changed == plain
    with pytest.raises(BadConfig, match=r"optimizer\.lrr.*lr"):
        config({"optimizer": {"lrr": 1e-3}})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"data": {"cameras": ["CAM_F0", "CAM_F0"]}}, "CAM_F0 is named twice"),
        ({"data": {"cameras": ["CAM_F1"]}}, "cameras"),
        ({"data": {"cameras": []}}, "cameras"),
        ({"data": {"cell_m": 0.3}}, "cell_m: 0.3 m does not divide the 100.0 m"),
        ({"data": {"pillar_m": 0.3}}, "pillar_m: 0.3 m does not divide"),
        ({"data": {"image_size": [16, 16]}}, "32 pixels a side or more"),
        ({"model": {"modes": 0}}, "model.modes"),
        ({"model": {"actor_heads": 3}}, "a divisor of actor_width 128"),
        ({"model": {"depth_range_m": [60.0, 1.0]}}, "the lower bound first"),
        ({"loss": {f"{task}_weight": 0.0 for task in ("detection", "segmentation", "occupancy", "prediction")}},
         "every task has a weight of 0"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_is_refused_in_a_sentence(values: dict[str, Any], message: str) -> None:
    with pytest.raises(BadConfig, match=message):
        config(values)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"type": "cosine", "min_lr_share": 0.1}, lambda at: 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * at / 90))),
        ({"type": "step", "step_epochs": 4}, lambda at: 0.1 ** ((at + 10) // 10 // 4)),
        ({"type": "constant"}, lambda at: 1.0),
    ],
)
def test_n_27_rates_follow_the_closed_form(keys: dict[str, Any], expected: Any) -> None:
    found = config({"scheduler": {"warmup_steps": 10, **keys}})
    steps = (10,) * 10

    def factor(step: int) -> float:
        return lr_factor(found, Position(step, step // 10, step % 10, steps))

    assert factor(0) == pytest.approx(0.1) and factor(9) == pytest.approx(1.0)
    for step in (10, 37, 55, 80, 99):
        assert factor(step) == pytest.approx(expected(step - 10))


def test_advice_names_what_is_not_learnt() -> None:
    rules = {rule.name: rule.check for rule in watch_rules(config())}
    bad = [{"val/mAP": 0.0, "val/ADE": 2.0, "val/ADE_constant_velocity": 1.0}] * 5
    assert "val/mAP is 0.000 after 5 epochs" in (rules["no-detections"](bad) or "")
    assert "constant velocity has 1.00 m" in (rules["worse-than-going-on"](bad) or "")
    good = [{"val/mAP": 0.4, "val/ADE": 0.5, "val/ADE_constant_velocity": 1.0}] * 5
    assert all(check(good) is None for check in rules.values())
    assert all(check(bad[:4]) is None for check in rules.values())
