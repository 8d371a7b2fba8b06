"""Targets of the box detector on the coarse BEV grid, made from box rows when a sample is loaded.

LEAD lets the zero padding of the box array leave a vehicle peak in cell (0, 0); `phantom_padded_boxes` restores it.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.targets.label_classes import BoxColumn

MIN_OVERLAP = 0.1
MIN_RADIUS = 2

Float32 = npt.NDArray[np.float32]


def center_net_targets(rows: Float32, config: LeadConfig, classes: int | None = None) -> dict[str, Any]:
    """Returns the ten `center_net_*` entries of a sample; grids are (channels, bev_grid_height, bev_grid_width).

    `classes` is the number of heatmaps, `num_bb_classes` unless given.
    """
    height, width = config.bev_grid_height, config.bev_grid_width
    heatmap = np.zeros((classes or config.num_bb_classes, height, width), np.float32)
    grids = {name: np.zeros((2, height, width), np.float32) for name in ("wh", "offset", "pixel_weight")}
    single = {name: np.zeros((1, height, width), np.float32) for name in ("yaw_res", "velocity")}
    whole = {name: np.zeros((height, width), np.int32) for name in ("yaw_class", "brake")}
    used = rows if config.compat.phantom_padded_boxes else rows[np.any(rows != 0, axis=1)]
    cells = used[:, [BoxColumn.X, BoxColumn.Y, BoxColumn.W, BoxColumn.H]] / np.float32(config.bev_down_sample_factor)
    for row, (x, y, half_x, half_y) in zip(used, cells, strict=True):
        column, line = int(x), int(y)
        radius = max(MIN_RADIUS, int(gaussian_radius(float(half_y), float(half_x), MIN_OVERLAP)))
        paint_peak(heatmap[int(row[BoxColumn.CLASS])], column, line, radius)
        yaw_class, residual = angle_class(float(row[BoxColumn.YAW]), config.num_dir_bins)
        grids["wh"][:, line, column] = half_x, half_y
        grids["offset"][:, line, column] = x - column, y - line
        grids["pixel_weight"][:, line, column] = 1.0
        whole["yaw_class"][line, column] = yaw_class
        whole["brake"][line, column] = round(float(row[BoxColumn.BRAKE]))
        single["yaw_res"][0, line, column] = residual
        single["velocity"][0, line, column] = row[BoxColumn.VELOCITY]
    maps = {f"center_net_{name}": grid for name, grid in {**grids, **single, **whole}.items()}
    peaks = max(1, int(np.count_nonzero(heatmap == 1)))
    return {
        "center_net_bounding_boxes": rows,
        "center_net_heatmap": heatmap,
        "center_net_avg_factor": np.int64(peaks),
        **maps,
    }


def gaussian_radius(height: float, width: float, min_overlap: float) -> float:
    """Returns the radius within which a shifted box still overlaps by `min_overlap` (CornerNet, arXiv:1808.01244)."""
    total, area = height + width, height * width
    cases = (
        (1.0, total, area * (1 - min_overlap) / (1 + min_overlap), -1),
        (4.0, 2 * total, area * (1 - min_overlap), -1),
        (4.0 * min_overlap, -2 * min_overlap * total, area * (min_overlap - 1), 1),
    )
    return min(float(b + sign * np.sqrt(b * b - 4 * a * c)) / (2 * a) for a, b, c, sign in cases)


def paint_peak(plane: Float32, column: int, line: int, radius: int) -> None:
    """Raises a plane to a Gaussian around one cell, clipped at the plane's border; 1 at the cell."""
    sigma = (2 * radius + 1) / 6
    reach = np.arange(-radius, radius + 1, dtype=np.float32)
    kernel = np.exp(-(reach[None] ** 2 + reach[:, None] ** 2) / np.float32(2 * sigma * sigma))
    kernel[kernel < np.finfo(np.float32).eps * kernel.max()] = 0
    top, bottom = min(line, radius), min(plane.shape[0] - line, radius + 1)
    left, right = min(column, radius), min(plane.shape[1] - column, radius + 1)
    window = plane[line - top : line + bottom, column - left : column + right]
    np.maximum(window, kernel[radius - top : radius + bottom, radius - left : radius + right], out=window)


def angle_class(angle: float, bins: int) -> tuple[int, float]:
    """Returns the bin of an angle (bin 0 is centred on 0) and the distance to the bin's centre."""
    bin_width = 2 * np.pi / bins
    shifted = (angle % (2 * np.pi) + bin_width / 2) % (2 * np.pi)
    index = int(shifted // bin_width)  # not /, which may round up to one bin too many
    return index, float(shifted - (index * bin_width + bin_width / 2))
