"""The training picture: the car's inputs, the labels and the network's output, side by side.

Called by the recipe's `picture` for TensorBoard and by whoever wants the same as a file (`write_picture`). Never
changes the batch or the predictions; a head that is off leaves its panel empty, with a note.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import torch

from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.data_sources import CARLA, NAVSIM
from lead_trainer.recipes.lead.decoders import confident, decode_boxes, non_maximum_suppression
from lead_trainer.recipes.lead.model import Predictions
from lead_trainer.recipes.lead.picture_panels import (
    BACKGROUND,
    BEV_COLOURS,
    BEV_NAMES,
    BOX_COLOURS,
    BOX_NAMES,
    NAVSIM_BEV_COLOURS,
    NAVSIM_BEV_NAMES,
    RADAR_COLOUR,
    ROUTE_COLOUR,
    SEMANTIC_COLOURS,
    SEMANTIC_NAMES,
    TARGET_COLOUR,
    WAYPOINT_COLOUR,
    BevOverlay,
    Colour,
    Picture,
    Points,
    bev_picture,
    coloured,
    depth_picture,
    empty,
    fitted,
    titled,
    write,
)

WIDTH = 1152
LEGEND_WIDTH = 192
COMMANDS = ("left", "right", "straight", "follow lane", "change left", "change right")
_CARLA_PIXELS = ("semantic", "depth")
_TARGET_KEYS = ("target_point_previous", "target_point", "target_point_next")
_MAX_RADAR_LOGIT = 0.0  # a detection counts where it is more likely than not

Array = npt.NDArray[Any]


def draw_training_picture(
    config: LeadConfig, batch: Mapping[str, Any], predictions: Predictions | None, *, index: int = 0
) -> Picture:
    """Returns an (H, 1152, 3) uint8 RGB picture of sample `index` of a batch.

    `batch` holds tensors or arrays with the batch as first axis, under LEAD's sample keys; missing labels are left out.
    """
    sample = {key: _array(values[index]) for key, values in batch.items() if not isinstance(values, str)}
    if _is_navsim(sample):
        sample, predictions = _under_carlas_keys(sample, predictions)
    camera = _camera(sample["rgb"])
    width, height = WIDTH // 2, round(WIDTH / 2 * camera.shape[0] / camera.shape[1])
    semantic, depth = (None, None) if predictions is None else (predictions.semantic, predictions.depth)
    rows = [
        titled(fitted(camera, WIDTH, 2 * height, smooth=True), "cameras"),
        _pair(_class_panel(sample.get("semantic"), width, height, "semantic, truth"),
              _class_panel(_best_class(semantic, index), width, height, "semantic, prediction")),
        _pair(_depth_panel(sample.get("depth"), width, height, "depth, truth"),
              _depth_panel(None if depth is None else _array(depth[index]), width, height, "depth, prediction")),
        _bev_row(config, sample, predictions, index),
    ]  # fmt: skip
    return np.concatenate(rows)


def _is_navsim(sample: Mapping[str, Array]) -> bool:
    return int(sample.get("source_dataset", CARLA.number)) == NAVSIM.number


def _under_carlas_keys(
    sample: Mapping[str, Array], predictions: Predictions | None
) -> tuple[dict[str, Array], Predictions | None]:
    """Returns a NavSim sample with its map and boxes where CARLA's are read, and the same of the heads."""
    own = {key.removeprefix(NAVSIM.prefix): value for key, value in sample.items() if key.startswith(NAVSIM.prefix)}
    others = {key: value for key, value in sample.items() if key not in _CARLA_PIXELS}  # zeros, beside CARLA's samples
    if predictions is not None:
        predictions = replace(
            predictions, bev_semantic=predictions.bev_semantic_navsim, center_net=predictions.center_net_navsim
        )
    return others | own, predictions


def write_picture(path: Path, picture: Picture) -> None:
    """Writes a picture as a PNG file, by a partial file that is renamed."""
    done, data = cv2.imencode(".png", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))
    if not done:
        raise ValueError(f"picture {path}: an array of {picture.shape} {picture.dtype} cannot be written as PNG")
    part = path.with_name(path.name + ".part")
    part.write_bytes(data.tobytes())
    part.rename(path)


def _array(values: Any) -> Array:
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        return np.asarray(values.float() if values.is_floating_point() else values)
    return np.asarray(values)


def _camera(rgb: Array) -> Picture:
    """Returns (H, W, 3) uint8 from a channels-first or channels-last image of 0..255."""
    picture = rgb.transpose(1, 2, 0) if rgb.shape[0] == 3 else rgb
    return np.ascontiguousarray(np.clip(picture, 0, 255).astype(np.uint8))


def _pair(left: Picture, right: Picture) -> Picture:
    return np.concatenate([left, right], axis=1)


def _best_class(logits: torch.Tensor | None, index: int) -> Array | None:
    return None if logits is None else _array(logits[index].argmax(dim=0))


def _class_panel(classes: Array | None, width: int, height: int, title: str) -> Picture:
    if classes is None:
        return titled(empty(width, height, "not part of this run"), title)
    return titled(fitted(coloured(classes.astype(np.int64), SEMANTIC_COLOURS), width, height), title)


def _depth_panel(depth: Array | None, width: int, height: int, title: str) -> Picture:
    if depth is None:
        return titled(empty(width, height, "not part of this run"), title)
    return titled(fitted(depth_picture(depth), width, height), title)


def _bev_row(config: LeadConfig, sample: Mapping[str, Array], predictions: Predictions | None, index: int) -> Picture:
    width = (WIDTH - LEGEND_WIDTH) // 2
    height = round(width * config.lidar_width_meter / config.lidar_height_meter)
    lidar = sample["rasterized_lidar"][0] if "rasterized_lidar" in sample else None
    truth = sample.get("bev_semantic")
    guess = None if predictions is None else _best_class(predictions.bev_semantic, index)
    size = {"width": width, "height": height}
    colours = NAVSIM_BEV_COLOURS if _is_navsim(sample) else BEV_COLOURS
    blank = np.zeros((config.lidar_height_pixel, config.lidar_width_pixel), np.int64)
    seen = blank if truth is None else truth.astype(np.int64)
    left = bev_picture(config, seen, colours, lidar, _truth(sample), **size)
    if predictions is None:
        right = empty(width, height, "no prediction")
    else:
        shown = blank if guess is None else guess
        right = bev_picture(config, shown, colours, None, _guess(config, predictions, index), **size)
    legend = _legend(config, sample, predictions, index, height)
    return np.concatenate([titled(left, "BEV, truth"), titled(right, "BEV, prediction"), legend], axis=1)


def _truth(sample: Mapping[str, Array]) -> BevOverlay:
    boxes, radar = sample.get("center_net_bounding_boxes"), sample.get("radar_detections")
    return BevOverlay(
        boxes=None if boxes is None else boxes[(boxes[:, 2] > 0) & (boxes[:, 3] > 0)],
        route=sample.get("route"),
        waypoints=sample.get("future_waypoints"),
        target_points=[sample[key] for key in _TARGET_KEYS if key in sample],
        radar=None if radar is None else radar[radar[:, 3] > 0.5][:, :3],
    )


def _guess(config: LeadConfig, predictions: Predictions, index: int) -> BevOverlay:
    plan, radar = predictions.plan, None
    if predictions.radar is not None:
        rows = _array(predictions.radar.predictions[index])
        radar = rows[rows[:, 3] > _MAX_RADAR_LOGIT][:, :3]
    waypoints = None if plan is None or plan.future_waypoints is None else _array(plan.future_waypoints[index])
    return BevOverlay(
        boxes=_predicted_boxes(config, predictions, index),
        route=None if plan is None or plan.route is None else _array(plan.route[index]),
        waypoints=waypoints,
        radar=radar,
    )


def _predicted_boxes(config: LeadConfig, predictions: Predictions, index: int) -> Points | None:
    if predictions.center_net is None:
        return None
    rows = decode_boxes(config, predictions.center_net)[index].detach().cpu().double().numpy()
    return non_maximum_suppression(confident(rows, config.bb_confidence_threshold), config.iou_treshold_nms)


def _legend(
    config: LeadConfig, sample: Mapping[str, Array], predictions: Predictions | None, index: int, height: int
) -> Picture:
    panel = np.full((height, LEGEND_WIDTH, 3), BACKGROUND, np.uint8)
    row = 18
    for line in _facts(config, sample, predictions, index):
        write(panel, line, (8, row), size=0.42)
        row += 17
    bev, boxes = _entries(BEV_NAMES[1:], BEV_COLOURS[1:]), list(zip(BOX_NAMES, BOX_COLOURS, strict=True))
    if _is_navsim(sample):
        bev, boxes = _entries(NAVSIM_BEV_NAMES[1:], NAVSIM_BEV_COLOURS[1:]), boxes[:1]
    groups: list[tuple[str, list[tuple[str, Colour]]]] = [
        ("points", [("route", ROUTE_COLOUR), ("waypoints", WAYPOINT_COLOUR), ("target points", TARGET_COLOUR),
                    ("radar detection", RADAR_COLOUR)]),
        ("BEV", bev),
        ("boxes", boxes),
        ("semantic", _entries(SEMANTIC_NAMES[1:], SEMANTIC_COLOURS[1:])),
    ]  # fmt: skip
    for title, entries in groups:
        row += 4
        write(panel, title, (8, row), (150, 152, 160), 0.4)
        for name, colour in entries:
            row += 12
            cv2.rectangle(panel, (10, row - 8), (20, row), colour, cv2.FILLED)
            write(panel, name, (26, row), size=0.35)
        row += 14
    return panel


def _entries(names: tuple[str, ...], colours: npt.NDArray[np.uint8]) -> list[tuple[str, Colour]]:
    return [(name, (int(r), int(g), int(b))) for name, (r, g, b) in zip(names, colours, strict=True)]


def _facts(config: LeadConfig, sample: Mapping[str, Array], predictions: Predictions | None, index: int) -> list[str]:
    """Returns the numbers beside the bird's-eye views, one line each."""
    lines = []
    if "speed" in sample:
        lines.append(f"speed {float(sample['speed']):.1f} m/s")
    if "target_speed" in sample:
        braking = " (brake)" if "brake" in sample and bool(sample["brake"]) else ""
        lines.append(f"target {float(sample['target_speed']):.1f} m/s{braking}")
    if predictions is not None and predictions.plan is not None and predictions.plan.target_speed is not None:
        lines.append(f"predicted {predictions.plan.target_speed[index].item():.1f} m/s")
    if "command" in sample and len(sample["command"]) == len(COMMANDS):
        lines.append(COMMANDS[int(np.argmax(sample["command"]))])
    return lines
