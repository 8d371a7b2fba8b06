"""Batches of the recipe `nuplan` that are made up: a flat street, a few boxes, points on them, pictures of noise."""

from typing import Any

import numpy as np
import torch

from lead_trainer.contract.samples import Batch
from lead_trainer.recipes.nuplan.config import NuplanConfig

AGENTS, POINTS = 4, 60


def tiny_config(**values: Any) -> NuplanConfig:
    """Returns the preset `tiny` with two cameras."""
    from lead_trainer.recipes.nuplan.config_values import KEYS

    data = {"cameras": ["CAM_F0", "CAM_B0"], **values.pop("data", {})}
    return KEYS.config(NuplanConfig, {"data": data, **values}, "tiny")


def made_up_batch(config: NuplanConfig, samples: int = 2, seed: int = 0) -> Batch:
    """Returns a batch whose agents drive straight on, the last one of each sample not valid."""
    rng, data = np.random.default_rng(seed), config.data
    cells, steps, (height, width) = data.grid_cells, data.future_steps, data.image_size
    cameras = len(data.cameras)
    boxes = np.zeros((samples, AGENTS, 7))
    boxes[..., :2] = rng.uniform(-0.8 * data.range_m, 0.8 * data.range_m, (samples, AGENTS, 2))
    boxes[..., 2:4] = rng.uniform((3.5, 1.6), (5.0, 2.2), (samples, AGENTS, 2))
    boxes[..., 4] = rng.uniform(-np.pi, np.pi, (samples, AGENTS))
    speed = rng.uniform(0, 8, (samples, AGENTS))
    boxes[..., 5], boxes[..., 6] = speed * np.cos(boxes[..., 4]), speed * np.sin(boxes[..., 4])
    times = (np.arange(steps) + 1) * data.future_step_s
    futures = np.zeros((samples, AGENTS, steps, 4))
    futures[..., :2] = boxes[:, :, None, :2] + boxes[:, :, None, 5:7] * times[:, None]
    futures[..., 2], futures[..., 3] = boxes[..., 4:5], speed[..., None]
    agent_valid = np.arange(AGENTS) < AGENTS - 1
    points = np.zeros((samples, POINTS, 5))
    points[..., :2] = boxes[:, rng.integers(0, AGENTS - 1, POINTS), :2]
    points[..., 2], points[..., 3] = 0.5, rng.uniform(0, 1, (samples, POINTS))
    axes = np.array([[0, 0, 1], [-1, 0, 0], [0, -1, 0]], float)  # camera axes in the vehicle's: ahead
    placed = np.tile(np.eye(4), (samples, cameras, 1, 1))
    placed[:, 0, :3, :3], placed[:, 1:, :3, :3] = axes, np.diag([-1, -1, 1]) @ axes
    placed[..., :3, 3] = (1.5, 0.0, 1.6)
    lens = np.array([[0.8 * width, 0, width / 2], [0, 0.8 * width, height / 2], [0, 0, 1]])
    arrays = {
        "images": rng.integers(0, 256, (samples, cameras, 3, height, width), np.uint8),
        "intrinsics": np.tile(lens, (samples, cameras, 1, 1)).astype(np.float32),
        "camera_to_vehicle": placed.astype(np.float32),
        "picture_to_sweep": np.tile(np.eye(4, dtype=np.float32), (samples, cameras, 1, 1)),
        "points": points.astype(np.float32),
        "point_count": np.full(samples, POINTS, np.int64),
        "boxes": boxes.astype(np.float32),
        "box_class": rng.integers(0, 3, (samples, AGENTS)),
        "agent_valid": np.tile(agent_valid, (samples, 1)),
        "futures": futures.astype(np.float32),
        "future_valid": np.tile(agent_valid[:, None] & (np.arange(steps) < steps - 1), (samples, 1, 1)),
        "ego_state": np.tile(np.array([5.0, 0.0, 0.0, 0.0], np.float32), (samples, 1)),
        "ego_future": np.zeros((samples, steps, 4), np.float32),
        "ego_future_valid": np.ones((samples, steps), bool),
        "layers": (rng.uniform(size=(samples, 5, cells, cells)) < 0.4).astype(np.uint8),
        "occupied": (rng.uniform(size=(samples, cells, cells)) < 0.1).astype(np.uint8),
        "known": (rng.uniform(size=(samples, cells, cells)) < 0.8).astype(np.uint8),
        "labelled": np.ones((samples, 4), bool),
        "timestamp": np.arange(samples, dtype=np.int64),
    }
    batch: Batch = {name: torch.from_numpy(value) for name, value in arrays.items()}
    names = [f"{seed}-{number}" for number in range(samples)]
    return {**batch, "calibration": ["one"] * samples, "log": ["log"] * samples, "token": names}
