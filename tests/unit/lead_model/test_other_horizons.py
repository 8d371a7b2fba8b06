"""Planners of other horizons, other speed tables and other inputs than LEAD's defaults."""

from typing import Any

import numpy as np
import pytest
import torch

from lead_testing.sample_batches import random_batch
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.config_values import load_config
from lead_trainer.recipes.lead.decoders import decode_target_speed
from lead_trainer.recipes.lead.loss_terms.planning import two_hot
from lead_trainer.recipes.lead.losses import compute_losses
from lead_trainer.recipes.lead.metrics import compute_metrics
from lead_trainer.recipes.lead.model import build_model
from lead_trainer.recipes.lead.network.planner import Plan
from lead_trainer.recipes.lead.targets.planner import route_points
from lead_trainer.recipes.lead.targets.view import NORMAL

TABLES = [(0.0, 10.0), (2.0, 5.0, 11.0), (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)]
BLIND = {
    "use_velocity": False, "use_discrete_command": False, "use_tp": False, "use_previous_tp": False,
    "use_next_tp": False, "use_radars": False,
}  # fmt: skip


def demo(**values: Any) -> LeadConfig:
    return load_config({"use_planning_decoder": True, **values}, "demo")


@pytest.mark.parametrize("table", TABLES)
def test_a_speed_comes_back_from_its_label_for_any_table(table: tuple[float, ...]) -> None:
    config = demo(target_speed_classes=table)
    inside = torch.linspace(table[0], table[-1], 23)
    label = two_hot(config, inside, torch.zeros(23, dtype=torch.bool))
    assert torch.allclose(label.sum(dim=1), torch.ones(23)) and (label > 0).sum(dim=1).max() <= 2
    assert torch.allclose((label * torch.tensor(table)).sum(dim=1), inside, atol=1e-5)
    outside = two_hot(config, torch.tensor([table[-1] + 9, table[-1]]), torch.tensor([False, True]))
    assert outside[0].argmax() == len(table) - 1 and outside[1].argmax() == 0
    assert set(outside.flatten().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("table", TABLES)
def test_a_perfect_speed_has_no_error_and_a_sure_brake_stops(table: tuple[float, ...]) -> None:
    config = demo(target_speed_classes=table)
    batch = random_batch(config)  # the second sample brakes
    batch["target_speed"] = torch.tensor([table[-1] + 3, 7.0])
    with torch.no_grad():
        predictions = build_model(config).eval()(batch)
    perfect = Plan(predictions.plan.context, None, None, None, target_speed=torch.tensor([table[-1], table[0]]))
    metrics = compute_metrics(config, predictions.__class__(**{**vars(predictions), "plan": perfect}), batch)
    assert metrics["metric/target_speed_error"] == 0
    assert metrics["metric/target_speed_correlation"] == pytest.approx(1.0)
    sure = torch.full((1, 1, len(table)), -9.0)
    sure[..., 0] = 9.0
    assert decode_target_speed(config, sure) == 0


@pytest.mark.parametrize(("waypoints", "route"), [(1, 1), (3, 17), (20, 5)])
def test_any_horizon_is_planned_and_learned(waypoints: int, route: int) -> None:
    config = demo(num_way_points_prediction=waypoints, num_route_points_prediction=route)
    batch = random_batch(config)
    predictions = build_model(config)(batch)
    assert predictions.plan.future_waypoints.shape == (2, waypoints, 2)
    assert predictions.plan.route.shape == (2, route, 2)
    report = compute_losses(config, predictions, batch)
    assert torch.isfinite(report.total)
    assert all(torch.isfinite(value) for value in compute_metrics(config, predictions, batch).values())


def test_a_route_is_smoothed_from_so_many_stored_points() -> None:
    """Where a stored route repeats points, its end counts only if it is among those that are read."""
    ahead = np.array([[2.5 + number // 2, 0.0] for number in range(16)] + [[11.0, number + 1.0] for number in range(4)])
    short, whole = (route_points(ahead, NORMAL, points, smooth=True) for points in (12, 20))
    assert len(short) == 12 and len(whole) == 20
    assert not np.allclose(short[:12], whole[:12])
    np.testing.assert_allclose(short[:6], whole[:6])


def test_a_route_longer_than_what_is_read_is_refused() -> None:
    with pytest.raises(BadConfig, match="num_route_points_prediction: found 21, but no more than 20 points of a route"):
        demo(num_route_points_prediction=21)
    assert demo(num_route_points_prediction=21, num_route_points_smoothing=30).num_route_points_prediction == 21


def test_a_planner_that_is_told_nothing_plans_from_what_it_sees() -> None:
    config = demo(**BLIND)
    batch = random_batch(config)
    for key in ("radar", "radar_detections", "command", "speed", "target_point"):
        del batch[key]
    model = build_model(config)
    report = compute_losses(config, model(batch), batch)
    assert "radar_loss" not in report.raw
    report.total.backward()  # type: ignore[no-untyped-call]
    assert model.planning_decoder.query.grad.abs().sum() > 0
