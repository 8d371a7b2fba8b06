"""Re-creates the inputs, labels and weights behind the reference values of the LEAD model, from their written recipe.

Used by tests/unit/lead_model and tests/bench/parity.py; the reference values themselves are read from `lead_model` in
the shared folder. Every array comes from PCG64 seeded by the CRC-32 of its name, so nothing large is stored.
"""

import json
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from lead_testing import shared_dir
from lead_trainer.blocks.fusion_transformer import SelfAttention
from lead_trainer.recipes.lead.compat import Compat
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.config_values import load_config
from lead_trainer.recipes.lead.model import Predictions, TFv6, build_model

BATCH = 2
VARIANTS = ("default", "small", "tiny", "tiny_ltf", "regnety032")  # each is a preset of the same name
Array = npt.NDArray[Any]


def golden_dir() -> Path:
    """Returns the folder of reference values; skips the calling test where it is absent."""
    return shared_dir() / "golden" / "lead_model"


def golden_json(name: str) -> Any:
    """Returns one JSON document of the reference."""
    return json.loads((golden_dir() / f"{name}.json").read_text(encoding="utf-8"))


def golden_arrays(name: str) -> dict[str, Array]:
    """Returns every array of one NPZ of the reference."""
    with np.load(golden_dir() / f"{name}.npz") as arrays:
        return {key: arrays[key] for key in arrays.files}


def variant_config(variant: str, planner: bool, **values: Any) -> LeadConfig:
    """Returns the config of a reference variant with LEAD's behaviour in every point."""
    lead = {"use_planning_decoder": planner, "channel_last": False, "compat": Compat.lead()}
    return load_config({**lead, **values}, variant)


def rng(name: str) -> np.random.Generator:
    """Returns the generator that belongs to a name."""
    return np.random.Generator(np.random.PCG64(zlib.crc32(name.encode())))


def uniform(name: str, *shape: int) -> npt.NDArray[np.float64]:
    """Returns numbers in [0, 1)."""
    return rng(name).random(shape)


def sampled(size: int) -> npt.NDArray[np.int64]:
    """Returns the flat positions at which the reference keeps values of an array of `size` elements."""
    if size <= 512:
        return np.arange(size)
    return np.array([index * 2654435761 % size for index in range(64)], dtype=np.int64)


def gradient_positions(size: int) -> npt.NDArray[np.int64]:
    """Returns the flat positions of the gradient values kept for a parameter of `size` elements."""
    if size <= 512:
        return np.arange(min(4, size))
    return np.array([index * 2654435761 % size for index in range(4)], dtype=np.int64)


def weight(name: str, shape: tuple[int, ...]) -> Array:
    """Returns the weights of one state-dict entry."""
    if name.endswith("num_batches_tracked"):
        return np.zeros(shape, dtype=np.int64)
    size = math.prod(shape)
    if name.endswith("running_mean"):
        values = 0.05 * rng(name).standard_normal(size)
    elif name.endswith("running_var"):
        values = 1 + 0.2 * rng(name).random(size)
    elif len(shape) == 1 and name.endswith(".weight"):
        values = 1 + 0.1 * rng(name).standard_normal(size)
    elif len(shape) == 1:
        values = 0.02 * rng(name).standard_normal(size)
    elif len(shape) == 3:
        values = 0.1 * rng(name).standard_normal(size)
    else:
        values = rng(name).standard_normal(size) / math.sqrt(math.prod(shape[1:]))
    return values.astype(np.float32).reshape(shape)


def fill(model: nn.Module) -> None:
    """Gives `model` the reference's weights."""
    state = {name: torch.from_numpy(weight(name, tuple(value.shape))) for name, value in model.state_dict().items()}
    model.load_state_dict(state)


def without_dropout(model: nn.Module) -> nn.Module:
    """Sets every dropout rate of `model` to 0 and returns it."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        elif isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0
        elif isinstance(module, SelfAttention):
            module.attention_dropout = 0.0
    return model


def golden_model(config: LeadConfig) -> TFv6:
    """Returns a model with the reference's weights, in eval mode."""
    model = build_model(config)
    fill(model)
    return model.eval()


def inputs(image_width: int) -> dict[str, Array]:
    """Returns the input arrays by batch key."""
    lidar = uniform("input:rasterized_lidar", BATCH, 1, 320, 384)
    steps = np.where(lidar < 0.7, 0, np.minimum(5, 1 + np.floor((lidar - 0.7) / 0.06)))
    arrays: dict[str, Array] = {
        "rgb": np.floor(256 * uniform("input:rgb", BATCH, 3, 384, image_width)).astype(np.uint8),
        "rasterized_lidar": (steps / 5).astype(np.float32),
        "radar": _radar(),
        "speed": (25 * uniform("input:speed", BATCH)).astype(np.float32),
        "command": np.eye(6)[np.floor(6 * uniform("input:command", BATCH)).astype(int)],
    }
    for key in ("target_point", "target_point_previous", "target_point_next"):
        arrays[key] = uniform(f"input:{key}", BATCH, 2) * (120, 60) + (-20, -30)
    return arrays


def _radar() -> Array:
    points = uniform("input:radar", BATCH, 300, 4) * (96, 80, 3, 30) + (-32, -40, -1, -10)
    index = np.arange(300)
    points[:, index % 75 >= 60] = 0
    sensor = np.broadcast_to((index // 75)[None, :, None], (BATCH, 300, 1))
    return np.concatenate((points, sensor), axis=2).astype(np.float32)


def labels(image_width: int) -> dict[str, Array]:
    """Returns the label arrays by batch key."""
    speeds = uniform("label:target_speed", BATCH)
    steps = uniform("label:future_waypoints", BATCH, 8, 2) * (1.5, 1.0) + (0.5, -0.5)
    sideways = uniform("label:route", BATCH, 10, 2)
    route = np.stack((2.5 + np.arange(10) + 0.2 * sideways[..., 0], -1 + 2 * sideways[..., 1]), axis=-1)
    return {
        "semantic": np.floor(10 * uniform("label:semantic", BATCH, 384, image_width)).astype(np.uint8),
        "depth": (50 * uniform("label:depth", BATCH, 384, image_width)).astype(np.float32),
        "bev_semantic": np.floor(13 * uniform("label:bev_semantic", BATCH, 320, 384)).astype(np.uint8),
        **_center_net(),
        "radar_detections": _radar_detections(),
        "future_waypoints": np.cumsum(steps, axis=1),
        "route": route,
        "target_speed": 19 * speeds,
        "brake": np.array([False, True]),
        "source_dataset": np.array([1, 1], dtype=np.int64),
    }


def _center_net() -> dict[str, Array]:
    rows, columns = 80, 96
    boxes = uniform("label:boxes", BATCH, 12, 10)
    heatmap = (0.9 * uniform("label:heatmap", BATCH, 8, rows, columns) ** 8).astype(np.float32)
    two = {key: np.zeros((BATCH, 2, rows, columns), np.float32) for key in ("wh", "offset", "pixel_weight")}
    one = {key: np.zeros((BATCH, 1, rows, columns), np.float32) for key in ("yaw_res", "velocity")}
    yaw_class = np.zeros((BATCH, rows, columns), np.int32)
    for sample in range(BATCH):
        for q in boxes[sample]:
            row, column = int(rows * q[0]), int(columns * q[1])
            heatmap[sample, int(8 * q[2]), row, column] = 1
            two["wh"][sample, :, row, column] = 0.2 + 3 * q[3:5]
            two["offset"][sample, :, row, column] = q[5:7]
            two["pixel_weight"][sample, :, row, column] = 1
            yaw_class[sample, row, column] = int(12 * q[7])
            one["yaw_res"][sample, 0, row, column] = (q[8] - 0.5) * math.pi / 6
            one["velocity"][sample, 0, row, column] = 20 * q[9]
    peaks = (heatmap == 1).sum(axis=(1, 2, 3))
    maps = {"heatmap": heatmap, "yaw_class": yaw_class, **two, **one}
    return {
        **{f"center_net_{key}": value for key, value in maps.items()},
        "center_net_avg_factor": np.maximum(1, peaks).astype(np.int64),
    }


def _radar_detections() -> Array:
    g = uniform("label:radar_detections", BATCH, 20, 3)
    rows = np.concatenate((g * (96, 80, 20) + (-32, -40, 0), np.ones((BATCH, 20, 1))), axis=2)
    rows[0, 7:] = 0
    rows[1, 12:] = 0
    return rows.astype(np.float32)


def golden_batch(config: LeadConfig) -> dict[str, Tensor]:
    """Returns inputs and labels as tensors."""
    width = config.final_image_width
    return {
        key: torch.from_numpy(np.ascontiguousarray(value)) for key, value in (inputs(width) | labels(width)).items()
    }


@torch.no_grad()
def forward_outputs(model: TFv6, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Runs `model` and returns every output the reference recorded, under the reference's name."""
    outputs: dict[str, Tensor] = {}
    exchange = model.backbone.exchange

    def recorded(index: int, image: Tensor, bev: Tensor) -> tuple[Tensor, Tensor]:
        mixed_image, mixed_bev = exchange(index, image, bev)
        stage = {"image_in": image, "lidar_in": bev, "image_out": mixed_image, "lidar_out": mixed_bev}
        outputs.update({f"stage{index}.{name}": value for name, value in stage.items()})
        return mixed_image, mixed_bev

    model.backbone.exchange = recorded  # type: ignore[method-assign]
    try:
        predictions = model(batch)
    finally:
        del model.backbone.exchange
    return outputs | _named(predictions)


def _named(predictions: Predictions) -> dict[str, Tensor]:
    maps, radar, plan = predictions.center_net, predictions.radar, predictions.plan
    assert maps is not None and radar is not None and plan is not None
    named: dict[str, Tensor | None] = {
        "bev_grid_64ch": predictions.features.bev_grid,
        "semantic": predictions.semantic,
        "depth": predictions.depth,
        "bev_semantic": predictions.bev_semantic,
        "radar_features": radar.features,
        "radar_predictions": radar.predictions,
        "planner_context": plan.context,
        "route": plan.route,
        "future_waypoints": plan.future_waypoints,
        "target_speed_logits": plan.target_speed_logits,
        "target_speed_scalar": plan.target_speed,
    }
    for name in ("heatmap_logit", "heatmap", "wh", "offset", "yaw_class", "yaw_res", "velocity"):
        named[f"center_net.{name}"] = getattr(maps, name)
    return {name: value for name, value in named.items() if value is not None}


def forward_deviations(variant: str, outputs: dict[str, Tensor]) -> dict[str, tuple[float, float]]:
    """Returns (largest deviation at the sampled positions, allowed deviation) of every recorded output."""
    want, allowed = golden_arrays(f"forward_{variant}"), golden_json("tolerances")["forward"][variant]
    deviations = {}
    for name, tolerance in allowed.items():
        found = outputs[name].double().flatten().numpy()[want[f"{name}|idx"]]
        deviations[name] = (float(np.abs(found - want[f"{name}|val"]).max()), float(tolerance["atol"]))
    return deviations
