"""Metrics of the recipe `nuplan`: hand-made cases, and the same bits however many ranks there were."""

import math

import numpy as np
import pytest
import torch
from torchmetrics import Metric

from lead_testing.nuplan_batches import made_up_batch, tiny_config
from lead_trainer.engine.validation.metric_states import merged_metric, packed, unpacked
from lead_trainer.recipes.nuplan.metric_states.cells import LayerOverlap, OccupancyRightness
from lead_trainer.recipes.nuplan.metric_states.collisions import CollisionRate, collides, rectangles
from lead_trainer.recipes.nuplan.metric_states.detection import DetectionPrecision
from lead_trainer.recipes.nuplan.metric_states.ways import WayErrors, way_rows
from lead_trainer.recipes.nuplan.metrics import (
    add_boxes,
    add_detected_ways,
    add_grids,
    add_ways,
    matched,
    metric_states,
)
from lead_trainer.recipes.nuplan.model import build_model
from lead_trainer.recipes.nuplan.network.box_code import Agents


def box(kind: int, x: float, score: float = 0.0) -> list[float]:
    return [kind, x, 0.0, 4.0, 2.0, 0.0, 0.0, 0.0, score]


def precision(truth: list[list[float]], guess: list[list[float]]) -> dict[str, float]:
    metric = DetectionPrecision()
    rows = [torch.tensor(one, dtype=torch.float64).view(-1, 9) for one in (truth, guess)]
    metric.update(torch.zeros(len(truth)), rows[0], torch.zeros(len(guess)), rows[1])
    found: dict[str, float] = metric.compute()
    return found


def test_n_42_average_precision_counts_each_truth_once_and_thresholds_by_distance() -> None:
    assert precision([box(0, 10)], [box(0, 10, 0.9)])["mAP"] == pytest.approx(1.0)
    assert precision([box(0, 10)], [box(0, 11.5, 0.9)])["AP/vehicle"] == pytest.approx(0.5)  # within 2 and 4 m
    assert precision([box(0, 10)], [box(1, 10, 0.9)])["AP/vehicle"] == 0.0  # of another class
    twice = precision([box(0, 10), box(0, 30)], [box(0, 10, 0.9), box(0, 10.1, 0.8)])["mAP"]
    assert 0.4 < twice < 0.6
    assert precision([], [box(0, 10, 0.9)]) == {}


def test_n_43_overlap_of_two_layers() -> None:
    metric = LayerOverlap(["road", "walk", "none"])
    truth = torch.tensor([[[[1, 1]], [[0, 0]], [[0, 0]]]])
    metric.update(torch.tensor([[[[1.0, -1.0]], [[1.0, -1.0]], [[-1.0, -1.0]]]]), truth)
    found = metric.compute()
    assert found["IoU/road"] == 0.5 and found["IoU/walk"] == 0.0 and "IoU/none" not in found
    assert found["mIoU"] == 0.25 and found["mIoU_of_truth"] == 0.5


def test_n_44_occupancy_counts_known_cells_and_has_no_recall_without_any_occupied() -> None:
    metric = OccupancyRightness()
    metric.update(
        torch.tensor([[[1.0, -1.0, 1.0, 1.0]]]), torch.tensor([[[1, 1, 0, 1]]]), torch.tensor([[[1, 1, 1, 0]]])
    )
    found = metric.compute()
    assert found["occupancy_accuracy"] == pytest.approx(1 / 3)
    assert (found["occupancy_recall"], found["occupancy_precision"]) == (0.5, 0.5)
    metric.reset()
    metric.update(torch.full((1, 1, 4), -1.0), torch.zeros(1, 1, 4), torch.ones(1, 1, 4))
    assert metric.compute()["occupancy_accuracy"] == 1.0 and math.isnan(metric.compute()["occupancy_recall"])


def ways(ends: list[list[float]], chances: list[list[float]], valid: list[bool] | None = None) -> dict[str, float]:
    """Returns the errors of agents that stand still, whose modes are off by so many metres at every step."""
    places = torch.tensor(ends, dtype=torch.float64)[:, :, None, None] * torch.tensor([1.0, 0.0], dtype=torch.float64)
    places = places.expand(-1, -1, 3, -1)
    known = torch.tensor(valid or [True] * len(ends))[:, None].expand(-1, 3)
    metric = WayErrors()
    metric.update(way_rows(places, torch.tensor(chances), torch.zeros(len(ends), 3, 2), known))
    found: dict[str, float] = metric.compute()
    return found


def test_n_45_and_n_46_errors_are_the_best_modes_and_two_metres_are_no_miss() -> None:
    found = ways([[2.0, 5.0], [3.0, 2.5]], [[0.5, 0.5], [0.5, 0.5]])
    assert found["ADE"] == pytest.approx(2.25) and found["FDE"] == pytest.approx(2.25)
    assert found["miss_rate"] == 0.5 and found["miss_rate_max"] == 1.0
    assert ways([[1.0], [9.0]], [[1.0], [1.0]], [True, False])["ADE"] == 1.0
    assert ways([[1.0]], [[1.0]], [False]) == {}


def test_n_47_recall_of_agents_and_precision_of_likely_modes() -> None:
    found = ways([[1.0, 1.0], [9.0, 1.0], [9.0, 9.0]], [[0.5, 0.5], [0.9, 0.1], [0.2, 0.8]])
    assert found["mode_recall"] == pytest.approx(2 / 3)
    assert found["mode_precision"] == pytest.approx(2 / 4)


@pytest.mark.parametrize(("offset", "rate"), [(0.0, 1.0), (3.0, 0.0)])
def test_n_48_crossing_boxes_collide_and_parallel_ones_do_not(offset: float, rate: float) -> None:
    along, steps = np.linspace(-10, 10, 8), np.zeros(8)
    crossing = np.stack([np.stack([along, steps], 1), np.stack([steps, along], 1)])
    parallel = np.stack([np.stack([along, steps], 1), np.stack([along, steps + offset], 1)])
    places = crossing if offset == 0 else parallel
    headings = np.array([[0.0] * 8, [np.pi / 2] * 8]) if offset == 0 else np.zeros((2, 8))
    shapes = rectangles(places, headings, np.broadcast_to([4.0, 2.0], (2, 8, 2)))
    metric = CollisionRate()
    metric.update(collides(shapes, shapes, np.ones((2, 8), bool)))
    assert metric.compute() == {"collision_rate": rate}


def states_of(numbers: list[int]) -> dict[str, Metric]:
    """Returns the states of a rank that validated these samples."""
    config = tiny_config()
    torch.manual_seed(0)
    model = build_model(config, {}).eval()
    states = metric_states()
    for number in numbers:
        batch = made_up_batch(config, 1, seed=number)
        with torch.no_grad():
            outputs = model(batch)
            chance = torch.Generator().manual_seed(number)
            boxes = batch["boxes"] + torch.randn(batch["boxes"].shape, generator=chance)
            scores = torch.rand(boxes.shape[:2], generator=chance)
            found = Agents(boxes, batch["box_class"], batch["agent_valid"], scores)
            add_grids(states, outputs, batch, {"layer_share": [0.6, 0.4, 0.4, 0.4, 0.4]})
            add_boxes(states, found, batch)
            add_ways(states, outputs, batch, config.data)
            add_detected_ways(states, outputs, found, batch)
    return states


def test_n_54_metrics_over_any_number_of_ranks_are_equal_to_the_bit() -> None:
    one = {name: metric.compute() for name, metric in states_of(list(range(6))).items()}
    assert one["detection"]["mAP"] > 0 and one["ways"]["ADE"] > 0 and one["ways_detected"]["ADE_detected"] > 0
    for shares in ([[0, 1, 2, 3, 4, 5], []], [[5, 1, 3], [0, 2, 4]], [[4], [], [0, 5], [3, 2, 1]]):
        ranks = [states_of(share) for share in shares]
        for name, metric in metric_states().items():
            held = [unpacked(packed(rank[name]), metric) for rank in ranks]
            found = merged_metric(metric, held).compute()
            same = {tag: value for tag, value in found.items() if value == one[name][tag] or math.isnan(value)}
            assert same.keys() == one[name].keys() == found.keys(), (name, found, one[name])


def test_detected_agents_are_matched_once_by_class_within_two_metres() -> None:
    config = tiny_config()
    batch = made_up_batch(config, 1)
    near = batch["boxes"].clone()
    near[0, :, 0] += 1.0
    found = Agents(near, batch["box_class"], batch["agent_valid"], torch.ones(1, 4))
    own, true = matched(found, batch, 0)
    assert own.tolist() == true.tolist() == [0, 1, 2]
    near[0, 0, 0] += 1.5
    assert matched(found, batch, 0)[0].tolist() == [1, 2]
