"""The network, its losses, gradients and optimizer steps equal LEAD's within the reference's own rounding noise."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lead_testing import golden_model as golden
from lead_trainer.engine.step import schedule
from lead_trainer.engine.step.optim import AdamWSettings, make_adamw
from lead_trainer.recipes.lead.losses import compute_losses
from lead_trainer.recipes.lead.metrics import compute_metrics
from lead_trainer.recipes.lead.model import build_model

pytestmark = pytest.mark.usefixtures("one_thread")

STAGES = {False: "pretrain", True: "posttrain"}


@pytest.mark.parametrize("planner", STAGES)
@pytest.mark.parametrize("variant", golden.VARIANTS)
def test_parameters_have_leads_names_shapes_and_order(variant: str, planner: bool) -> None:
    suffix = "" if variant == "default" else f"_{variant}"
    want = golden.golden_json(f"state_dict_{STAGES[planner]}{suffix}")
    with torch.device("meta"):
        model = build_model(golden.variant_config(variant, planner))
    ours = {name: (list(value.shape), str(value.dtype)) for name, value in model.state_dict().items()}
    assert list(ours) == list(want["entries"])
    assert ours == {name: (entry["shape"], f"torch.{entry['dtype']}") for name, entry in want["entries"].items()}
    assert [name for name, _ in model.named_parameters()] == [
        name for name, entry in want["entries"].items() if entry["kind"] == "param"
    ]


def test_a_fresh_model_is_initialised_like_leads() -> None:
    want = golden.golden_json("init_stats_default")["stats"]
    torch.manual_seed(0)
    model = build_model(golden.variant_config("default", planner=True))
    for name, parameter in model.named_parameters():
        mean, std, low, high = want[name]
        if std == 0 and low == high and parameter.numel() > 1:
            assert torch.all(parameter == mean), name
        elif parameter.numel() >= 2048:
            assert parameter.std().item() == pytest.approx(std, rel=0.05), name
            assert parameter.mean().item() == pytest.approx(mean, abs=0.1 * std), name


@pytest.mark.parametrize("variant", ["tiny", "default"])
def test_outputs_equal_leads(variant: str) -> None:
    config = golden.variant_config(variant, planner=True)
    outputs = golden.forward_outputs(golden.golden_model(config), golden.golden_batch(config))
    deviations = golden.forward_deviations(variant, outputs)
    assert len(deviations) == 34
    assert {key: found for key, (found, allowed) in deviations.items() if found > allowed} == {}


@pytest.mark.parametrize("planner", STAGES)
@pytest.mark.parametrize("variant", ["tiny", "tiny_ltf"])
def test_losses_and_metrics_equal_leads(variant: str, planner: bool) -> None:
    config = golden.variant_config(variant, planner)
    model, batch = golden.golden_model(config), golden.golden_batch(config)
    cases = golden.golden_json(f"losses_{variant}")["cases"]
    with torch.no_grad():
        predictions = model(batch)
    for case, sources in (("eval", [1, 1]), ("eval/source_dataset=[1,2]", [1, 2])):
        want = cases[f"{STAGES[planner]}/{case}"]
        marked = {**batch, "source_dataset": torch.tensor(sources)}
        report = compute_losses(config, predictions, marked)
        assert values(report.raw) == pytest.approx(want["losses"], rel=1e-5)
        assert report.weights == pytest.approx(want["weights_normalised"], rel=1e-12)
        assert values(report.scaled) == pytest.approx(want["scaled"], rel=1e-5)
        assert report.total.item() == pytest.approx(want["total"], rel=1e-5)
        assert values(compute_metrics(config, predictions, marked)) == pytest.approx(want["metrics"], rel=1e-4)


def test_gradients_and_three_steps_equal_leads() -> None:
    config = golden.variant_config("tiny", planner=True)
    model, batch = golden.without_dropout(golden.golden_model(config)).train(), golden.golden_batch(config)
    settings = AdamWSettings(lr=config.lr, weight_decay=config.weight_decay, amsgrad=True)
    optimizer = make_adamw(model, settings)
    factor = schedule.lagging(schedule.warm_restarts(total_steps=310, steps_per_epoch=10))
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for step, want in enumerate(golden.golden_json("adamw_steps_tiny")["steps"]):
        optimizer.param_groups[0]["lr"] = config.lr * factor(step)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(want["lr"], rel=1e-12)
        report = compute_losses(config, model(batch), batch)
        assert report.total.item() == pytest.approx(want["total_loss_before_step"], rel=1e-4 if step < 2 else 1e-3)
        optimizer.zero_grad()
        report.total.backward()  # type: ignore[no-untyped-call]
        if step == 0:
            assert_gradients_equal_leads(model, "tiny")
        optimizer.step()
        assert_parameters_equal_leads(model, before, want["params"])


def assert_gradients_equal_leads(model: torch.nn.Module, variant: str) -> None:
    norms = golden.golden_json(f"losses_{variant}")["cases"]["posttrain/train_nodropout"]["grad_norm_per_parameter"]
    sampled = golden.golden_arrays(f"grads_posttrain_{variant}")
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        if is_rounding_noise(name) or norms[name] < 1e-6:
            continue
        norm = parameter.grad.norm().item()
        assert norm == pytest.approx(norms[name], rel=1e-2), name
        ours = parameter.grad.flatten()[torch.from_numpy(golden.gradient_positions(parameter.numel()))]
        # The norm is the measure; single values show a permutation or a sign, and move where a ReLU switches
        # between one processor's rounding and another's.
        np.testing.assert_allclose(ours, sampled[name], atol=0.1 * norm / parameter.numel() ** 0.5, err_msg=name)


def assert_parameters_equal_leads(model: torch.nn.Module, before: dict[str, Tensor], want: dict[str, Any]) -> None:
    parameters = dict(model.named_parameters())
    for name, entry in want.items():
        if is_rounding_noise(name):
            continue
        assert parameters[name].norm().item() == pytest.approx(entry["norm"], rel=1e-3), name
        moved = (parameters[name] - before[name]).norm().item()
        assert moved == pytest.approx(entry["delta_norm_from_init"], rel=2e-2), name


def is_rounding_noise(name: str) -> bool:
    """Key biases cancel in softmax: their gradients are zero in theory."""
    return name.endswith(".attn.key.bias")


def values(tensors: dict[str, Tensor]) -> dict[str, float]:
    return {key: value.item() for key, value in tensors.items()}
