"""Student, losses and metrics, each against numbers worked out by hand."""

import hashlib
import math
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file

from lead_testing import PROJECT_ROOT
from lead_trainer.contract.step import StepContext
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.distill.action_stats import STATS
from lead_trainer.recipes.distill.config import INPUT_TYPES, MAX_ACCELERATION, MAX_CURVATURE, DistillConfig
from lead_trainer.recipes.distill.config_values import load_config
from lead_trainer.recipes.distill.ingest.actions import fitted_actions, initial_speed
from lead_trainer.recipes.distill.loss_terms.contrastive import info_nce
from lead_trainer.recipes.distill.losses import compute_losses, reasoning_scale
from lead_trainer.recipes.distill.metrics import (
    action_ends,
    action_totals,
    trajectory_totals,
    with_spreads,
)
from lead_trainer.recipes.distill.model import build_model, parameter_count
from lead_trainer.recipes.distill.network.action_tokens import bin_centres, bin_of, expected_actions
from lead_trainer.recipes.distill.network.unicycle import integrate
from lead_trainer.recipes.distill.recipe import RECIPE


def config(**values: Any) -> DistillConfig:
    return load_config({"model": "baseline", "offline": True, **values}, "tiny")


def batch(settings: DistillConfig, count: int = 2) -> dict[str, Any]:
    samples = RECIPE.samples(settings, {})
    return RECIPE.collate([samples.load(index, 0) for index in range(count)])


def made(modes: int, steps: int = 3, **changes: Any) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Returns predictions and truth that agree, heading along x at 1 m a step."""
    xy = torch.stack([torch.arange(1.0, steps + 1), torch.zeros(steps)], -1)
    yaw = torch.zeros(steps)
    predictions = {
        "xy": xy.expand(1, modes, steps, 2).clone(),
        "yaw": yaw.expand(1, modes, steps).clone(),
        "sincos": torch.tensor([0.0, 1.0]).expand(1, modes, steps, 2).clone(),
        "logits": torch.zeros(1, modes),
    }
    truth = {"target_xy": xy[None], "target_yaw": yaw[None], "target_valid": torch.ones(1, steps, dtype=torch.bool)}
    return {**predictions, **changes}, truth


def test_the_page_says_the_parameters_of_every_student() -> None:
    page = (PROJECT_ROOT / "trainer/lead_trainer/recipes/distill/README.md").read_text()
    for benchmark, kind in INPUT_TYPES.items():
        counts = [
            parameter_count(load_config({"model": "baseline", "model_size": size, "benchmark": benchmark,
                                         "input_type": kind, "num_modes": modes}))
            for size in ("110m", "500m") for modes in (1, 6)
        ]  # fmt: skip
        assert f"| {kind} | {' | '.join(f'{count:,}' for count in counts)} |" in page


@pytest.mark.parametrize(("size", "millions"), [("110m", 107.0), ("500m", 485.0)])
@pytest.mark.parametrize("values", [{}, {"model": "reasoning"}, {"no_unicycle": True}, {"discrete_actions": True}])
def test_d_10_a_student_has_the_parameters_of_the_guide(size: str, millions: float, values: dict[str, Any]) -> None:
    count = parameter_count(load_config({"model": "baseline", "model_size": size, **values}))
    assert abs(count / (millions * 1e6) - 1.0) < 0.02, f"{count:,}"


def test_d_17_position_is_an_mse_and_yaw_one_of_sine_and_one_of_cosine() -> None:
    predictions, truth = made(1)
    predictions["xy"][0, 0, 2] += torch.tensor([3.0, -1.5])  # 9 + 2.25 over 2 coordinates of 3 steps
    predictions["sincos"][0, 0, 1] = torch.tensor([0.6, 0.8])  # 0.36 + 0.04 over 3 steps
    report = compute_losses(config(), predictions, truth, {})
    torch.testing.assert_close(report.parts["position"], torch.tensor(11.25 / 6))
    torch.testing.assert_close(report.parts["yaw"], torch.tensor(0.4 / 3))
    torch.testing.assert_close(report.total, torch.tensor(11.25 / 6 + 0.3 * 0.4 / 3))


def test_d_17_steps_without_a_truth_count_for_nothing() -> None:
    predictions, truth = made(1)
    predictions["xy"][0, 0, 2] += 100.0
    truth["target_valid"][0, 2] = False
    assert compute_losses(config(), predictions, truth, {}).total == 0.0


def test_d_18_the_weight_of_the_reasoning_warms_up_over_twenty_epochs() -> None:
    reasoning = config(model="reasoning")
    weights = {epoch: reasoning.reasoning_weight * reasoning_scale(reasoning, epoch - 1) for epoch in (1, 20, 99)}
    assert weights == pytest.approx({1: 0.0125, 20: 0.25, 99: 0.25})
    assert reasoning_scale(config(model="reasoning", reasoning_warmup_epochs=0), 0) == 1.0


def test_d_18_the_loss_holds_the_warmed_up_weight() -> None:
    settings = config(model="reasoning")
    predictions, truth = made(1, embedding=torch.eye(384)[:1])
    predictions = {key: value.repeat(2, *[1] * (value.ndim - 1)) for key, value in predictions.items()}
    truth = {key: value.repeat(2, *[1] * (value.ndim - 1)) for key, value in truth.items()}
    truth["embedding"] = torch.eye(384)[:2]
    report = compute_losses(settings, predictions, truth, {}, reasoning_scale(settings, 0))
    torch.testing.assert_close(report.total, 0.0125 * report.parts["reasoning"])
    assert report.parts["reasoning"] > 0.1


def test_d_19_matched_embeddings_cost_less_than_shuffled_ones_and_like_texts_are_no_negatives() -> None:
    teacher = torch.nn.functional.normalize(torch.randn(8, 384, generator=torch.Generator().manual_seed(0)), dim=-1)
    matched = info_nce(teacher * 3.0, teacher, 0.07, gather=False)
    shuffled = info_nce(teacher.roll(1, 0), teacher, 0.07, gather=False)
    assert matched < 1e-3 < 5.0 < shuffled
    twins = torch.cat([teacher, teacher])
    torch.testing.assert_close(info_nce(twins, twins, 0.07, gather=False), matched)
    two = torch.eye(384)[:2]  # cosine 1 with one's own, 0 with the other
    torch.testing.assert_close(info_nce(two, two, 0.5, gather=False), torch.tensor(math.log(1 + math.exp(-2.0))))


def test_d_20_no_action_weight_no_action_term() -> None:
    for weight in (0.0, 0.5):
        settings = config(action_weight=weight)
        predictions, truth = made(1, steps=2, actions=torch.tensor([[[[1.0, 0.02], [1.0, 0.0]]]]))
        truth |= {"actions": torch.zeros(1, 2, 2)}
        report = compute_losses(settings, predictions, truth, {STATS: [[0.0, 0.0], [2.0, 0.01]]})
        assert ("action" in report.parts) == (weight > 0)
        assert report.total == pytest.approx(weight * (0.25 + 4.0 + 0.25) / 4)


@pytest.mark.parametrize("bins", [2, 7, 256])
def test_d_21_a_value_comes_back_from_its_bin_within_half_a_bin(bins: int) -> None:
    limits = torch.tensor([MAX_ACCELERATION, MAX_CURVATURE])
    values = (torch.rand(1000, 2, generator=torch.Generator().manual_seed(1)) * 2 - 1) * limits
    tokens = bin_of(values, bins)
    back = bin_centres(bins).T[tokens, torch.arange(2)]
    assert ((back - values).abs() <= limits / bins * (1 + 1e-4)).all()
    assert bin_of(torch.tensor([[-99.0, 99.0]]), bins).tolist() == [[0, bins - 1]]
    sharp = torch.nn.functional.one_hot(tokens, bins).float() * 100
    torch.testing.assert_close(expected_actions(sharp), back, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("training", [True, False])
def test_d_21_tokens_drive_by_their_mean_in_training_and_after_it(training: bool) -> None:
    settings = config(discrete_actions=True)
    predictions = build_model(settings, {}).train(training)(batch(settings))
    torch.testing.assert_close(predictions["actions"], expected_actions(predictions["bins"]))


def test_d_21_the_smoothed_cross_entropy_is_that_of_the_right_bin() -> None:
    settings = config(discrete_actions=True, num_action_bins=4)
    predictions, truth = made(1, steps=1, bins=torch.zeros(1, 1, 1, 2, 4))
    truth |= {"actions": torch.zeros(1, 1, 2)}
    predictions["bins"][..., 2] = 3.0  # 0 lies at the lower edge of bin 2 of 0..3
    likely = 3.0 - math.log(math.exp(3.0) + 3.0)
    unlikely = -math.log(math.exp(3.0) + 3.0)
    expected = -(0.925 * likely + 3 * 0.025 * unlikely)
    report = compute_losses(settings, predictions, truth, {STATS: [[1.0, 1.0], [1.0, 1.0]]})
    assert report.parts["action"] == pytest.approx(expected, rel=1e-5)
    assert report.total == pytest.approx(expected, rel=1e-5)  # tokens are always supervised


def test_d_22_no_action_is_a_straight_line_and_a_constant_curvature_a_circle() -> None:
    xy, yaw = integrate(torch.zeros(1, 64, 2), torch.tensor([5.0]), 0.1)
    torch.testing.assert_close(xy[0], torch.stack([0.5 * torch.arange(1.0, 65.0), torch.zeros(64)], -1))
    assert not yaw.any()
    actions = torch.tensor([0.0, 0.1]).expand(1, 64, 2)
    xy, yaw = integrate(actions, torch.tensor([5.0]), 0.1)
    radius = (xy[0] - torch.tensor([0.0, 10.0])).norm(dim=-1)
    torch.testing.assert_close(radius, torch.full((64,), 10.0), rtol=1e-3, atol=0)
    torch.testing.assert_close(yaw[0, -1], torch.tensor(0.1 * 5.0 * 6.4))


def test_d_22_gradients_flow_and_the_fit_of_a_trajectory_gives_its_actions_back() -> None:
    actions = (0.5 * torch.sin(torch.arange(64.0) / 9))[:, None] * torch.tensor([1.0, 0.05])
    actions.requires_grad_()
    xy, yaw = integrate(actions, torch.tensor(8.0), 0.1)
    xy.sum().backward()
    assert actions.grad is not None and (actions.grad[:-1] != 0).all()
    fit = fitted_actions(xy.detach().double().numpy(), yaw.detach().double().numpy(), 8.0, 0.1)
    again, _ = integrate(torch.from_numpy(fit), torch.tensor(8.0), 0.1)
    assert (again - xy).norm(dim=-1).max() < 0.01
    torch.testing.assert_close(torch.from_numpy(fit).float()[:, 1], actions.detach()[:, 1], atol=1e-3, rtol=0)
    past, turned = integrate(torch.tensor([1.0, 0.02]).expand(15, 2), torch.tensor(4.0), 0.1)
    assert initial_speed(past.double().numpy(), turned.double().numpy(), 0.1) == pytest.approx(5.5, abs=0.01)


def test_d_22_and_d_24_a_unicycle_student_predicts_64_steps_within_its_limits() -> None:
    torch.manual_seed(0)
    settings = config(model="reasoning")
    inputs = batch(settings)
    predictions = build_model(settings, {})(inputs)
    assert {key: tuple(value.shape) for key, value in predictions.items()} == {
        "xy": (2, 1, 64, 2),
        "yaw": (2, 1, 64),
        "sincos": (2, 1, 64, 2),
        "logits": (2, 1),
        "actions": (2, 1, 64, 2),
        "embedding": (2, 384),
    }
    limits = torch.tensor([MAX_ACCELERATION, MAX_CURVATURE])
    assert (predictions["actions"].abs() <= limits).all()
    xy, _ = integrate(predictions["actions"], inputs["speed"][:, None], 0.1)
    torch.testing.assert_close(xy, predictions["xy"])


def test_d_23_a_direct_student_gives_four_numbers_a_step_and_uses_the_history() -> None:
    torch.manual_seed(0)
    settings = config(no_unicycle=True)
    model, inputs = build_model(settings, {}).eval(), batch(settings)
    predictions = model(inputs)
    assert predictions["sincos"].shape == predictions["xy"].shape == (2, 1, 64, 2)
    sine, cosine = (predictions["sincos"] / predictions["sincos"].norm(dim=-1, keepdim=True)).unbind(-1)
    torch.testing.assert_close(torch.sin(predictions["yaw"]), sine)
    torch.testing.assert_close(torch.cos(predictions["yaw"]), cosine)
    other = model({**inputs, "history": inputs["history"] * 2.0})
    assert (other["xy"] - predictions["xy"]).abs().max() > 1e-4


def test_a_backbone_begins_with_the_weights_of_a_file(tmp_path: Path) -> None:
    backbone = timm.create_model("test_resnet", num_classes=5)
    torch.save(backbone.state_dict(), tmp_path / "test_resnet.pth")
    student = build_model(config(backbone_weights=str(tmp_path / "test_resnet.pth")), {})
    own = student.encoder.backbone.state_dict()
    assert own and all(torch.equal(value, backbone.state_dict()[name]) for name, value in own.items())
    torch.save({"conv1.weight": torch.zeros(1)}, tmp_path / "other.pth")
    with pytest.raises(BadConfig, match=r"backbone_weights: .*other\.pth"):
        build_model(config(backbone_weights=str(tmp_path / "other.pth")), {})


def test_a_backbone_begins_with_the_weights_of_an_object_whose_digest_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "weights/test_resnet.safetensors"
    file.parent.mkdir()
    backbone = timm.create_model("test_resnet", num_classes=5)
    save_file(backbone.state_dict(), file)
    monkeypatch.setenv("LEAD_STORE_URL", f"file://{tmp_path}")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    key = {"backbone_weights": "store:weights/test_resnet.safetensors"}
    student = build_model(config(**key, backbone_weights_sha256=digest), {})
    for name, value in student.encoder.backbone.state_dict().items():
        assert torch.equal(value, backbone.state_dict()[name]), name
    with pytest.raises(BadConfig, match="backbone_weights_sha256: not set"):
        build_model(config(**key), {})


def test_vectors_have_no_backbone_to_give_weights_to() -> None:
    with pytest.raises(BadConfig, match="backbone_weights: vectors are read by no backbone"):
        config(benchmark="argoverse2", input_type="vector", backbone_weights="resnet50.pth")


def test_the_labels_mean_and_spread_are_kept_with_the_weights() -> None:
    settings, facts = config(), {STATS: [[0.2, 0.001], [0.7, 0.03]]}
    trained = build_model(settings, facts).train()
    trained(batch(settings))
    weights = trained.state_dict()
    assert torch.equal(weights[STATS], torch.tensor(facts[STATS]))
    evaluated = build_model(settings, {})
    assert not torch.equal(evaluated.state_dict()[STATS], weights[STATS])
    RECIPE.load_initial_weights(evaluated, settings, {}, weights)
    assert torch.equal(evaluated.state_dict()[STATS], weights[STATS])


def test_a_stage_that_begins_from_weights_learns_in_the_units_of_its_own_labels() -> None:
    settings, facts = config(), {STATS: [[0.2, 0.001], [0.7, 0.03]]}
    weights = build_model(settings, {STATS: [[0.0, 0.0], [2.0, 0.01]]}).state_dict()
    later = build_model(settings, facts)
    RECIPE.load_initial_weights(later, settings, facts, weights)
    assert torch.equal(later.state_dict()[STATS], torch.tensor(facts[STATS]))
    assert all(torch.equal(value, weights[name]) for name, value in later.state_dict().items() if name != STATS)


def test_d_27_action_statistics_are_exact_over_batches() -> None:
    settings = config(log_action_stats=True)
    actions = torch.tensor([[[[1.0, 0.1], [3.0, -0.1]]]])
    predictions = {"actions": actions, "logits": torch.zeros(1, 1)}
    totals = action_totals(settings, predictions)
    means = with_spreads({tag: float(total) / int(count) for tag, (total, count) in totals.items()})
    assert means == pytest.approx({"accel_mean": 2.0, "accel_std": 1.0, "curvature_mean": 0.0, "curvature_std": 0.1})
    ends = with_spreads({tag: float(value) for tag, value in action_ends(settings, predictions).items()})
    assert ends == pytest.approx({"accel_min": 1.0, "accel_max": 3.0, "curvature_min": -0.1, "curvature_max": 0.1})
    assert not action_totals(config(), predictions) and not action_ends(config(), predictions)


def test_d_33_yaw_errors_know_that_a_circle_closes() -> None:
    predictions, truth = made(1)
    predictions["xy"][0, 0] += torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, 2.0]])
    predictions["yaw"][0, 0] = torch.tensor([0.0, math.radians(3.0), math.radians(-6.0 + 360.0)])
    totals = {tag: float(total) / int(count) for tag, (total, count) in trajectory_totals(predictions, truth).items()}
    assert totals == pytest.approx({"ade": 7 / 3, "fde": 2.0, "yaw_error": 3.0, "final_yaw_error": 6.0}, abs=1e-4)
    truth["target_valid"][0, 2] = False
    totals = {tag: float(total) / int(count) for tag, (total, count) in trajectory_totals(predictions, truth).items()}
    assert totals == pytest.approx({"ade": 2.5, "fde": 0.0, "yaw_error": 1.5, "final_yaw_error": 3.0}, abs=1e-4)


def test_d_38_gradient_checkpointing_is_on_for_the_large_student_and_changes_no_gradient() -> None:
    sizes = {size: config(model_size=size).saves_memory for size in ("110m", "500m")}
    assert sizes == {"110m": False, "500m": True}
    assert RECIPE.save_memory is not None
    gradients = []
    for checkpointed in (False, True):
        torch.manual_seed(0)
        settings = config()
        model = build_model(settings, {})
        if checkpointed:
            RECIPE.save_memory(model)
        RECIPE.step(model, batch(settings), StepContext(config=settings)).loss.backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], msg=name)


def test_d_41_several_modes_have_probabilities_and_every_mode_a_trajectory() -> None:
    torch.manual_seed(0)
    settings = config(num_modes=6)
    predictions = build_model(settings, {})(batch(settings))
    assert predictions["xy"].shape == (2, 6, 64, 2)
    torch.testing.assert_close(predictions["logits"].softmax(1).sum(1), torch.ones(2))
    assert torch.cdist(predictions["xy"][0].flatten(1), predictions["xy"][0].flatten(1)).fill_diagonal_(1.0).min() > 0


def test_d_42_the_winner_takes_all_and_its_probability_is_learnt() -> None:
    predictions, truth = made(3)
    offsets = torch.tensor([2.0, 1.0, 3.0]).view(1, 3, 1, 1)
    predictions["xy"] = (predictions["xy"] + offsets).requires_grad_()
    predictions["logits"] = torch.zeros(1, 3, requires_grad=True)
    report = compute_losses(config(num_modes=6), predictions, truth, {})
    report.total.backward()
    assert predictions["xy"].grad is not None and predictions["logits"].grad is not None
    assert [bool(mode.any()) for mode in predictions["xy"].grad[0]] == [False, True, False]
    assert report.parts["position"].item() == pytest.approx(1.0)
    assert report.parts["mode"].item() == pytest.approx(math.log(3.0))
    torch.testing.assert_close(predictions["logits"].grad, torch.tensor([[1 / 3, -2 / 3, 1 / 3]]))


def test_d_42_the_mixture_is_a_log_sum_of_gaussians() -> None:
    predictions, truth = made(2, steps=2)
    predictions["xy"][0, 0, 0] += torch.tensor([1.0, 0.0])
    predictions["xy"][0, 1, 1] += torch.tensor([0.0, 2.0])
    predictions["logits"] = torch.tensor([[0.25, 0.75]]).log()
    report = compute_losses(config(num_modes=6, multimodal_loss="nll"), predictions, truth, {})
    expected = -math.log(0.25 * math.exp(-0.5 * 1.0) + 0.75 * math.exp(-0.5 * 4.0)) / 2
    assert report.parts["position"] == pytest.approx(expected, rel=1e-5)
