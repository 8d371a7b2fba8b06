"""What is measured: states of a validation, and what a batch adds to them, of the model and of baselines.

A baseline needs no model: nothing is there and each class is sure nowhere (`mAP` 0), every cell is what most cells of
the training set are, every agent keeps its velocity.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torchmetrics import Metric

from lead_trainer.contract.samples import Batch
from lead_trainer.contract.step import Facts
from lead_trainer.recipes.nuplan.data_facts import LAYER_SHARE_FACT
from lead_trainer.recipes.nuplan.data_keys import DataKeys
from lead_trainer.recipes.nuplan.metric_states.cells import LayerOverlap, OccupancyRightness
from lead_trainer.recipes.nuplan.metric_states.collisions import CollisionRate, along_ways, collides, rectangles
from lead_trainer.recipes.nuplan.metric_states.detection import DetectionPrecision
from lead_trainer.recipes.nuplan.metric_states.rows import sample_numbers
from lead_trainer.recipes.nuplan.metric_states.ways import WayErrors, way_rows
from lead_trainer.recipes.nuplan.model import Outputs
from lead_trainer.recipes.nuplan.network.box_code import Agents
from lead_trainer.recipes.nuplan.network.ways import straight_on

MATCH_M = 2.0  # a detected agent is the nearest true one of its class within this
OF_DETECTED, CONSTANT_VELOCITY, MAJORITY = "_detected", "_constant_velocity", "_majority"


def metric_states() -> dict[str, Metric]:
    """Returns every state of a validation, empty."""
    return {
        "detection": DetectionPrecision(),
        "layers": LayerOverlap(),
        "layers_majority": LayerOverlap(suffix=MAJORITY),
        "occupancy": OccupancyRightness(),
        "ways": WayErrors(),
        "ways_detected": WayErrors(OF_DETECTED),
        "ways_constant_velocity": WayErrors(CONSTANT_VELOCITY),
        "collisions": CollisionRate(),
    }


def add_grids(states: Mapping[str, Metric], outputs: Outputs, batch: Batch, facts: Facts) -> None:
    """Adds map layers and occupancy of the labelled samples."""
    of_map, of_cells = batch["labelled"][:, 1], batch["labelled"][:, 2]
    layers = batch["layers"][of_map]
    states["layers"].update(outputs["layers"][of_map], layers)
    if LAYER_SHARE_FACT in facts:
        majority = torch.tensor(facts[LAYER_SHARE_FACT], device=layers.device) - 0.5
        states["layers_majority"].update(majority.view(1, -1, 1, 1).expand(layers.shape), layers)
    pair = outputs["occupied"][of_cells], batch["occupied"][of_cells]
    states["occupancy"].update(*pair, batch["known"][of_cells])


def add_boxes(states: Mapping[str, Metric], found: Agents, batch: Batch) -> None:
    """Adds true and detected boxes of the labelled samples."""
    labelled = batch["labelled"][:, 0]
    numbers = sample_numbers(batch["log"], batch["token"]).to(labelled.device)
    true = Agents(batch["boxes"], batch["box_class"], batch["agent_valid"], torch.zeros_like(batch["boxes"][..., 0]))
    states["detection"].update(*_rows(true, numbers, labelled), *_rows(found, numbers, labelled))


def add_ways(states: Mapping[str, Metric], ways: Outputs, batch: Batch, data: DataKeys) -> None:
    """Adds the ways of true boxes, those of agents that keep their velocity, and collisions."""
    counted = batch["agent_valid"] & batch["labelled"][:, 3:4]
    places, chances = ways["places"][:, 1:], ways["mode_scores"][:, 1:].softmax(-1)
    truth, valid = batch["futures"][..., :2], batch["future_valid"]
    states["ways"].update(way_rows(places[counted], chances[counted], truth[counted], valid[counted]))
    on = straight_on(batch["boxes"][counted], data.future_steps, data.future_step_s)[:, None]
    states["ways_constant_velocity"].update(
        way_rows(on, torch.ones_like(on[:, :, 0, 0]), truth[counted], valid[counted])
    )
    for row in range(len(counted)):
        known = counted[row] & valid[row].any(1)
        if bool(known.any()):
            states["collisions"].update(_collisions(places[row, known], chances[row, known], row, known, batch))


def add_detected_ways(states: Mapping[str, Metric], ways: Outputs, found: Agents, batch: Batch) -> None:
    """Adds the ways of detected boxes that match a true one: of its class, within MATCH_M, the surest first."""
    places, chances = ways["places"][:, 1:], ways["mode_scores"][:, 1:].softmax(-1)
    for row in range(len(places)):
        if not bool(batch["labelled"][row, 3]):
            continue
        own, true = matched(found, batch, row)
        pair = batch["futures"][row, true, :, :2], batch["future_valid"][row, true]
        states["ways_detected"].update(way_rows(places[row, own], chances[row, own], *pair))


def matched(found: Agents, batch: Batch, row: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the detected boxes (N,) of a sample and the true ones (N,) that they are."""
    distance = torch.cdist(found.boxes[row, :, :2].double(), batch["boxes"][row, :, :2].double())
    same = found.kinds[row][:, None] == batch["box_class"][row]
    allowed = same & found.valid[row][:, None] & batch["agent_valid"][row] & (distance <= MATCH_M)
    distance = torch.where(allowed, distance, torch.inf).cpu()
    own, true = [], []
    for guess in range(len(distance)):
        nearest = int(distance[guess].argmin())
        if distance[guess, nearest] <= MATCH_M:
            own.append(guess)
            true.append(nearest)
            distance[:, nearest] = torch.inf
    device = found.boxes.device
    return torch.tensor(own, dtype=torch.long, device=device), torch.tensor(true, dtype=torch.long, device=device)


def _rows(agents: Agents, numbers: torch.Tensor, labelled: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the sample's number (N,) of each valid box and its row (N, 9): class, box, score."""
    counted = agents.valid & labelled[:, None]
    kinds = agents.kinds[counted].double()[:, None]
    rows = torch.cat([kinds, agents.boxes[counted].double(), agents.scores[counted].double()[:, None]], 1)
    return numbers[:, None].expand_as(counted)[counted], rows


def _collisions(
    places: torch.Tensor, chances: torch.Tensor, row: int, known: torch.Tensor, batch: Batch
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    likeliest = places[torch.arange(len(places)), chances.argmax(1)].double().cpu().numpy()
    boxes = batch["boxes"][row, known].double().cpu().numpy()
    future = batch["futures"][row, known].double().cpu().numpy()
    valid = batch["future_valid"][row, known].cpu().numpy()
    sizes = np.broadcast_to(boxes[:, None, 2:4], (*valid.shape, 2))
    guess = rectangles(likeliest, along_ways(likeliest, boxes[:, :2]), sizes)
    hits: np.ndarray[tuple[int], np.dtype[np.float64]] = collides(
        guess, rectangles(future[..., :2], future[..., 2], sizes), valid
    )
    return hits
