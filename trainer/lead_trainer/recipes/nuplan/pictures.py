"""What people see of a training: the cameras, and below them the truth beside the prediction, from above.

Ahead is up. Map layers and occupied cells are areas, boxes are outlines in the colour of their class, ways are dots:
of the truth, and the likeliest of each true agent. The ego is white.
"""

import cv2
import numpy as np
import numpy.typing as npt
import torch

from lead_trainer.contract.reports import Picture
from lead_trainer.contract.samples import Batch
from lead_trainer.recipes.nuplan.config import NuplanConfig
from lead_trainer.recipes.nuplan.model import Outputs
from lead_trainer.recipes.nuplan.network.box_code import shown_boxes
from lead_trainer.recipes.nuplan.network.ways import EGO_SIZE_M

Float = npt.NDArray[np.floating]
PANEL = 400  # pixels a side
LAYER_COLOURS = ((60, 60, 60), (90, 90, 90), (150, 150, 60), (60, 90, 60), (120, 60, 60))
OCCUPIED, EGO = (110, 80, 150), (255, 255, 255)
CLASS_COLOURS = ((80, 180, 255), (255, 120, 80), (120, 255, 120))
SHOWN_SCORE = 0.3  # least score of a box that is drawn


def overview(config: NuplanConfig, batch: Batch, row: int, outputs: Outputs) -> Picture:
    """Returns the picture (H, W, 3) of one sample of a batch."""
    data, keys = config.data, config.model
    outputs = {name: value.detach() for name, value in outputs.items()}
    found = shown_boxes(outputs["heat"], outputs["boxes"], data.range_m, keys.max_detections, SHOWN_SCORE)
    valid = batch["agent_valid"][row]
    likeliest = outputs["mode_scores"][row, 1:].argmax(1)
    ways = outputs["places"][row, 1:][torch.arange(len(likeliest)), likeliest][valid]
    future = batch["futures"][row, valid][..., :2]
    steps = batch["future_valid"][row, valid]
    truth = _panel(batch["layers"][row], batch["occupied"][row], data.range_m)
    _draw(truth, batch["boxes"][row, valid], batch["box_class"][row, valid], data.range_m)
    _dots(truth, [way[known] for way, known in zip(future, steps, strict=True)], data.range_m)
    guess = _panel(outputs["layers"][row] > 0, outputs["occupied"][row] > 0, data.range_m)
    shown = found.valid[row]
    _draw(guess, found.boxes[row, shown], found.kinds[row, shown], data.range_m)
    _dots(guess, list(ways), data.range_m)
    panels = np.concatenate([truth, guess], 1)
    return np.ascontiguousarray(np.concatenate([_cameras(batch["images"][row], panels.shape[1]), panels], 0))


def _cameras(pictures: torch.Tensor, width: int) -> Picture:
    strip = np.concatenate(list(pictures.cpu().numpy().transpose(0, 2, 3, 1)), 1)
    height = max(1, round(strip.shape[0] * width / strip.shape[1]))
    return np.asarray(cv2.resize(strip, (width, height), interpolation=cv2.INTER_AREA), np.uint8)


def _panel(layers: torch.Tensor, occupied: torch.Tensor, range_m: float) -> Picture:
    cells = np.zeros((*occupied.shape, 3), np.uint8)
    for layer, colour in zip(layers.cpu().numpy(), LAYER_COLOURS, strict=True):
        cells[layer.astype(bool)] = colour
    cells[occupied.cpu().numpy().astype(bool)] = OCCUPIED
    panel = cv2.resize(cells[::-1, ::-1], (PANEL, PANEL), interpolation=cv2.INTER_NEAREST)
    picture = np.ascontiguousarray(panel, np.uint8)
    _outline(picture, np.array([0.0, 0.0, *EGO_SIZE_M, 0.0]), EGO, range_m)
    return picture


def _draw(panel: Picture, boxes: torch.Tensor, kinds: torch.Tensor, range_m: float) -> None:
    for box, kind in zip(boxes.double().cpu().numpy(), kinds.tolist(), strict=True):
        _outline(panel, box, CLASS_COLOURS[kind], range_m)


def _outline(panel: Picture, box: Float, colour: tuple[int, int, int], range_m: float) -> None:
    x, y, length, width, yaw = box[:5]
    ahead = np.array([np.cos(yaw), np.sin(yaw)]) * length / 2
    left = np.array([-np.sin(yaw), np.cos(yaw)]) * width / 2
    corners = np.array([x, y]) + np.array([ahead + left, left - ahead, -ahead - left, ahead - left])
    cv2.polylines(panel, [_pixels(corners, range_m)], True, colour, 1, cv2.LINE_AA)


def _dots(panel: Picture, ways: list[torch.Tensor], range_m: float) -> None:
    for way in ways:
        for place in _pixels(way.double().cpu().numpy(), range_m):
            cv2.circle(panel, (int(place[0]), int(place[1])), 2, (255, 230, 80), -1, cv2.LINE_AA)


def _pixels(places: Float, range_m: float) -> npt.NDArray[np.int32]:
    found = np.round((range_m - places[..., ::-1]) * (PANEL / (2 * range_m)))
    return np.clip(found, -PANEL, 2 * PANEL).astype(np.int32)
