"""Where a stage's first weights come from: said when from nowhere, taken over but for heads that it does not have."""

from typing import Any

import pytest
import structlog
import torch

from lead_trainer.engine.reporting.watch import advise
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.lead.config_values import load_config
from lead_trainer.recipes.lead.recipe import RECIPE

SILENT = [{"backbone_weights": "resnet.pth"}, {"load_file": "model_0030.pth"}]


def model_of(**values: Any) -> torch.nn.Module:
    return RECIPE.model(load_config(values, "demo"), {})


def test_a_run_whose_image_backbone_begins_with_random_weights_says_so_and_what_to_set() -> None:
    (said,) = RECIPE.reports.warnings(load_config({}))
    assert said.startswith("backbone_weights is not set") and "a file of timm's resnet34" in said
    assert [RECIPE.reports.warnings(load_config(values)) for values in SILENT] == [[], []]


def test_a_first_stage_in_a_cluster_is_advised_once_and_a_later_one_never() -> None:
    epoch = {"loss": 1.0}
    rules = RECIPE.reports.watch_rules(load_config({}))
    (advisory,) = advise(rules, [epoch], 1)
    assert advisory.rule == "random-backbone" and advisory.message.endswith("nothing is downloaded")
    assert advise(rules, [epoch, epoch], 2) == []
    for values in (*SILENT, {"use_planning_decoder": True}):
        assert advise(RECIPE.reports.watch_rules(load_config(values)), [epoch], 1) == []


def test_weights_of_heads_that_a_stage_does_not_have_are_left_out_and_named() -> None:
    weights = model_of(use_planning_decoder=True).state_dict()
    fewer = {"use_depth": False, "radar_detection": False}
    model = model_of(**fewer)
    with structlog.testing.capture_logs() as told:
        RECIPE.load_initial_weights(model, load_config(fewer, "demo"), {}, weights)
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    (warning,) = [entry["event"] for entry in told if entry["log_level"] == "warning"]
    assert warning.endswith("does not have: depth_decoder, planning_decoder, radar_detector")


def test_heads_of_a_data_set_that_joins_begin_fresh_and_are_named() -> None:
    window = {"min_x_meter": -32, "max_x_meter": 32, "min_y_meter": -32, "max_y_meter": 32}
    carla = {**window, "LTF": True, "use_depth": False, "radar_detection": False}
    weights = model_of(**carla).state_dict()
    for planner in (False, True):
        with_navsim = {**window, "LTF": True, "use_navsim_data": True, "used_cameras": [True] * 3,
                       "use_planning_decoder": planner}  # fmt: skip
        model = model_of(**with_navsim)
        with structlog.testing.capture_logs() as told:
            RECIPE.load_initial_weights(model, load_config(with_navsim, "demo"), {}, weights)
        state = model.state_dict()
        assert all(torch.equal(state[name], value) for name, value in weights.items())
        (warning,) = [entry["event"] for entry in told if entry["log_level"] == "warning"]
        assert warning == (
            "load_file: its weights have none for these heads, which begin with random ones: "
            "bev_semantic_decoder_navsim, center_net_decoder_navsim"
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda weights: [weights.pop(name) for name in [*weights] if name.startswith("backbone.")],
            "such as backbone",
        ),
        (lambda weights: weights.pop("depth_decoder.deconv1.0.weight"), "lack 1 parameters, such as depth_decoder"),
        (lambda weights: weights.update({"backbone.more": torch.zeros(1)}), "also hold 1 parameters, such as backbone"),
        (lambda weights: weights.update({"depth_decoder.deconv1.0.weight": torch.zeros(1)}), "another shape"),
    ],
)
def test_weights_that_do_not_fit_are_refused(change: Any, message: str) -> None:
    model, config = model_of(), load_config({}, "demo")
    weights = model.state_dict()
    change(weights)
    with pytest.raises(BadConfig, match=message):
        RECIPE.load_initial_weights(model, config, {}, weights)
