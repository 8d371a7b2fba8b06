"""From network outputs to boxes and speeds, as the driving agent reads them: CenterNet peaks, NMS, target speed.

Called by pictures and by evaluation; training itself needs none of it. Box rows are x, y, w, h, yaw, velocity, brake,
class, score; w and h are half extents, brake is always 0.
"""

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.network.perception_heads import CenterNetMaps

Boxes = npt.NDArray[np.float64]
BRAKE_THRESHOLD = 0.9  # of the probability of speed class 0


def angle_of_class(yaw_class: Tensor, residual: Tensor, classes: int) -> Tensor:
    """Returns the yaw in (-pi, pi] of a bin and the residual from its centre; class 0 is centred on 0."""
    angle = yaw_class * (2 * math.pi / classes) + residual
    return torch.where(angle > math.pi, angle - 2 * math.pi, angle)


@torch.no_grad()
def decode_boxes(config: LeadConfig, maps: CenterNetMaps) -> Tensor:
    """Returns the best boxes (B, K, 9) in BEV pixels, best first; a peak is a cell no neighbour of which is higher."""
    heatmap = maps.heatmap
    kernel = config.center_net_max_pooling_kernel
    peaks = torch.where(F.max_pool2d(heatmap, kernel, stride=1, padding=kernel // 2) == heatmap, heatmap, 0)
    scores, index = peaks.flatten(1).topk(config.top_k_center_keypoints)
    cells = heatmap.shape[2] * heatmap.shape[3]
    classes, cell = index // cells, index % cells

    def at(values: Tensor) -> Tensor:
        return values.float().flatten(2).gather(2, cell[:, None].expand(-1, values.shape[1], -1)).transpose(1, 2)

    corner = torch.stack((cell % heatmap.shape[3], cell // heatmap.shape[3]), dim=-1)
    centre = (corner + at(maps.offset)) * config.bev_down_sample_factor
    extent = at(maps.wh) * config.bev_down_sample_factor
    yaw_class = at(maps.yaw_class).argmax(dim=-1)
    yaw = angle_of_class(yaw_class, at(maps.yaw_res)[..., 0], config.num_dir_bins)
    velocity = at(maps.velocity)[..., 0] if maps.velocity is not None else torch.zeros_like(yaw)
    rest = torch.stack((yaw, velocity, torch.zeros_like(yaw), classes.to(yaw.dtype), scores.to(yaw.dtype)), dim=-1)
    return torch.cat((centre, extent, rest), dim=-1)


def to_ego_frame(config: LeadConfig, boxes: npt.NDArray[np.floating]) -> Boxes:
    """Converts boxes (N, 9) from BEV pixels to metres in the ego frame."""
    out: Boxes = boxes.astype(np.float64)
    out[:, :4] /= config.pixels_per_meter
    out[:, :2] += (config.min_x_meter, config.min_y_meter)
    return out


def confident(boxes: Boxes, threshold: float) -> Boxes:
    """Returns the boxes whose score is above `threshold`."""
    return boxes[boxes[:, 8] > threshold]


def non_maximum_suppression(boxes: Boxes, iou_threshold: float) -> Boxes:
    """Drops, best first, every box that overlaps a kept one by more than `iou_threshold`, whatever their classes."""
    kept: list[npt.NDArray[np.float64]] = []
    for box in boxes[np.argsort(-boxes[:, 8], kind="stable")]:
        if all(rotated_iou(box, other) <= iou_threshold for other in kept):
            kept.append(box)
    return np.array(kept).reshape(-1, boxes.shape[1])


def rotated_iou(first: npt.NDArray[np.floating], second: npt.NDArray[np.floating]) -> float:
    """Returns intersection over union of two rotated rectangles given by x, y, half extents and yaw."""
    reach = np.hypot(*first[2:4]) + np.hypot(*second[2:4])
    if np.hypot(*(first[:2] - second[:2])) >= reach:
        return 0.0
    shared = _area(_clip(_corners(first), _corners(second)))
    union = 4 * float(first[2] * first[3]) + 4 * float(second[2] * second[3]) - shared
    return shared / union if union > 0 else 0.0


def decode_target_speed(config: LeadConfig, logits: Tensor, brake_threshold: float = BRAKE_THRESHOLD) -> Tensor:
    """Returns an ensemble's speed (B,) in m/s from logits (members, B, classes); 0 where braking is sure."""
    probabilities = logits.float().mean(dim=0).softmax(dim=-1)
    speed = (probabilities * probabilities.new_tensor(config.target_speed_classes)).sum(dim=-1)
    return torch.where(probabilities[:, 0] > brake_threshold, 0.0, speed)


def _corners(box: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Returns the (4, 2) corners of a rectangle, counter-clockwise in x-y."""
    x, y, w, h, yaw = (float(value) for value in box[:5])
    local = np.array([(-w, -h), (w, -h), (w, h), (-w, h)])
    rotation = np.array([(math.cos(yaw), math.sin(yaw)), (-math.sin(yaw), math.cos(yaw))])
    corners: npt.NDArray[np.float64] = local @ rotation + (x, y)
    return corners


def _clip(polygon: npt.NDArray[np.float64], window: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns the part of a convex `polygon` inside a convex `window` (Sutherland and Hodgman 1974)."""
    for begin, end in zip(window, np.roll(window, -1, axis=0), strict=True):
        if len(polygon) == 0:
            break
        edge = end - begin
        side = edge[0] * (polygon[:, 1] - begin[1]) - edge[1] * (polygon[:, 0] - begin[0])
        inside: list[npt.NDArray[np.float64]] = []
        for i in range(len(polygon)):
            j = (i + 1) % len(polygon)
            if side[i] >= 0:
                inside.append(polygon[i])
            if (side[i] >= 0) != (side[j] >= 0):
                inside.append(polygon[i] + (polygon[j] - polygon[i]) * side[i] / (side[i] - side[j]))
        polygon = np.array(inside).reshape(-1, 2)
    return polygon


def _area(polygon: npt.NDArray[np.float64]) -> float:
    x, y = polygon[:, 0], polygon[:, 1]
    return abs(float(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1)))) / 2
