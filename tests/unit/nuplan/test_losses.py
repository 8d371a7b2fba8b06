"""Losses of the recipe `nuplan`: each task's own, a label that is missing, and both kinds of weights."""

from typing import Any

import pytest
import torch

from lead_testing.nuplan_batches import made_up_batch, tiny_config
from lead_trainer.recipes.nuplan.data_keys import TASKS
from lead_trainer.recipes.nuplan.loss_terms.boxes import centre_focal
from lead_trainer.recipes.nuplan.loss_terms.centres import centre_heat
from lead_trainer.recipes.nuplan.loss_terms.grids import known_cross_entropy, layer_cross_entropy, layer_dice
from lead_trainer.recipes.nuplan.loss_terms.ways import way_losses
from lead_trainer.recipes.nuplan.loss_terms.weighting import fixed_sum, learned_sum
from lead_trainer.recipes.nuplan.losses import compute_losses
from lead_trainer.recipes.nuplan.network.box_code import encoded

Made = tuple[Any, dict[str, torch.Tensor], dict[str, Any]]


def perfect(config: Any, batch: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Returns outputs that are the truth."""
    range_m, cells = config.data.range_m, config.data.grid_cells
    code, number, _ = encoded(batch["boxes"], range_m, cells)
    valid = batch["agent_valid"]
    heat = centre_heat(batch["boxes"], batch["box_class"], valid, number, range_m, cells)
    boxes = torch.zeros(len(valid), 8, cells * cells)
    boxes.scatter_(2, number[:, None].expand(-1, 8, -1), code.transpose(1, 2))
    scores = torch.tensor([20.0, -20.0])
    ways = torch.cat([batch["ego_future"][:, None], batch["futures"]], 1)[:, :, None].expand(-1, -1, 2, -1, -1)
    return {
        "heat": torch.where(heat == 1, 20.0, -20.0),
        "boxes": boxes.unflatten(2, (cells, cells)),
        "layers": batch["layers"].float() * 40 - 20,
        "occupied": batch["occupied"].float() * 40 - 20,
        "places": ways[..., :2].clone(), "headings": ways[..., 2].clone(), "speeds": ways[..., 3].clone(),
        "log_sigma": torch.zeros_like(ways[..., :2]), "mode_scores": scores.expand(*ways.shape[:3]),
    }  # fmt: skip


@pytest.fixture
def made() -> Made:
    config = tiny_config()
    batch = made_up_batch(config)
    return config, perfect(config, batch), batch


def test_n_19_to_n_22_perfect_predictions_lose_nearly_nothing(made: Made) -> None:
    parts = compute_losses(*made, {}).parts
    for name in ("heat_loss", "box_loss", "layer_bce_loss", "occupancy_loss", "ade_loss", "fde_loss", "mode_loss"):
        assert float(parts[name]) == pytest.approx(0.0, abs=2e-3), name


def test_n_19_a_wrong_centre_raises_the_focal_loss_alone(made: Made) -> None:
    config, outputs, batch = made
    before = compute_losses(config, outputs, batch, {}).parts
    outputs["heat"][0, 0, 3, 3] = 5.0
    after = compute_losses(config, outputs, batch, {}).parts
    assert float(after["heat_loss"]) > float(before["heat_loss"]) + 0.1
    assert {name for name in before if float(before[name]) != float(after[name])} == {"heat_loss", "detection_loss"}


def test_n_19_and_n_20_hand_computed_cases() -> None:
    logits, target = torch.zeros(1, 1, 2, 2), torch.tensor([[[[1.0, 0.5], [0.0, 0.0]]]])
    step = 0.25 * torch.log(torch.tensor(2.0))
    assert float(centre_focal(logits, target)) == pytest.approx(float(step * (1 + 0.5**4 + 2)), rel=1e-6)
    truth = torch.tensor([[[[1, 0, 0, 0]] * 4]])
    assert float(layer_cross_entropy(torch.zeros(1, 1, 4, 4), truth)) == pytest.approx(0.6931472, rel=1e-6)
    assert float(layer_dice(torch.zeros(1, 1, 4, 4), truth)) == pytest.approx(1 - 5 / 13, rel=1e-6)


def test_n_21_unknown_cells_are_not_counted() -> None:
    logits, truth = torch.tensor([[[0.0, 9.0], [0.0, -9.0]]]), torch.tensor([[[1, 0], [0, 1]]])
    known = torch.tensor([[[1, 0], [1, 0]]])
    assert float(known_cross_entropy(logits, truth, known)) == pytest.approx(0.6931472, rel=1e-6)


def test_n_22_one_mode_of_unit_spread_is_half_the_square_and_the_best_mode_learns() -> None:
    truth, valid = torch.zeros(1, 3, 2), torch.tensor([[True, True, False]])
    error = torch.tensor([[[[3.0, 4.0], [0.0, 2.0], [9.0, 9.0]]]])
    one = way_losses(error, torch.zeros_like(error), torch.zeros(1, 1), truth, valid)
    constant = float(torch.log(torch.tensor(2 * torch.pi)))
    assert float(one.nll) == pytest.approx((0.5 * 25 + 0.5 * 4) / 2 + constant, rel=1e-6)
    assert float(one.ade) == pytest.approx(3.5) and float(one.fde) == pytest.approx(2.0)
    places = torch.cat([error, 2 * error], 1).requires_grad_()
    found = way_losses(places, torch.zeros(1, 2, 3, 2), torch.zeros(1, 2), truth, valid)
    (found.nll + found.ade + found.fde).backward()
    assert places.grad is not None
    assert places.grad[0, 0, :2].abs().sum() > 0 and places.grad[0, 1].abs().sum() == 0
    assert places.grad[0, 0, 2].abs().sum() == 0  # where there is no truth


def test_n_23_fixed_weights_sum_exactly_and_learned_ones_have_a_gradient() -> None:
    losses = {"detection": torch.tensor(2.0), "occupancy": torch.tensor(0.5)}
    assert float(fixed_sum(losses, {"detection": 0.5, "occupancy": 4.0})) == 3.0
    spread = {task: torch.zeros((), requires_grad=True) for task in TASKS}
    learned_sum(losses, spread).backward()
    assert float(spread["detection"].grad) == pytest.approx(-1.0)  # type: ignore[arg-type]
    assert float(spread["occupancy"].grad) == pytest.approx(0.5)  # type: ignore[arg-type]
    assert spread["prediction"].grad is None  # without a loss its weight does not move


@pytest.mark.parametrize("number", range(4))
def test_n_23_a_task_without_labels_has_no_term_rather_than_a_zero(made: Made, number: int) -> None:
    config, outputs, batch = made
    whole = compute_losses(config, outputs, batch, {})
    batch["labelled"][:, number] = False
    report = compute_losses(config, outputs, batch, {})
    task = TASKS[number]
    assert f"{task}_loss" not in report.parts and len(report.parts) < len(whole.parts)
    assert float(report.total) == pytest.approx(float(whole.total - whole.parts[f"{task}_loss"]), abs=1e-4)


def test_n_23_a_sample_without_a_label_changes_nothing(made: Made) -> None:
    config, outputs, batch = made
    batch["labelled"][1] = False
    outputs = {name: value + torch.randn_like(value) * 0.1 for name, value in outputs.items()}
    both = compute_losses(config, outputs, batch, {})
    first = {name: value[:1] for name, value in batch.items()}
    alone = compute_losses(config, {name: value[:1] for name, value in outputs.items()}, first, {})
    assert {name: float(value) for name, value in both.parts.items()} == pytest.approx(
        {name: float(value) for name, value in alone.parts.items()}, rel=1e-5
    )


def test_n_24_imitation_is_a_term_on_request_alone(made: Made) -> None:
    config, outputs, batch = made
    assert "imitation_loss" not in compute_losses(config, outputs, batch, {}).parts
    wanted = config.model_copy(update={"loss": config.loss.model_copy(update={"imitation": True})})
    report = compute_losses(wanted, outputs, batch, {})
    assert set(report.parts) - set(compute_losses(config, outputs, batch, {}).parts) == {"imitation_loss"}
    batch["ego_future_valid"][:] = False
    assert "imitation_loss" not in compute_losses(wanted, outputs, batch, {}).parts
