"""Points of the ego frame on BEV feature maps; pure functions."""

import torch
from torch import Tensor

from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.network.camera_view import sees


def unit_points(config: LeadConfig, points: Tensor) -> Tensor:
    """Scales points (..., 2) = (x, y) in metres so that the BEV window becomes [0, 1] x [0, 1]."""
    low = points.new_tensor((config.min_x_meter, config.min_y_meter))
    size = points.new_tensor((config.lidar_width_meter, config.lidar_height_meter))
    return (points - low) / size


def sample_bev(config: LeadConfig, features: Tensor, points: Tensor) -> Tensor:
    """Reads features (B, C, H, W) at points (B, N, 2), bilinear, as (B, N, C); outside of the window they fade to 0.

    The map's rows run along y and its columns along x, but LEAD reads rows along x and columns along y, and so does
    `compat.transposed_radar_sampling`, which is on by default.
    """
    place = unit_points(config, points)
    if config.compat.transposed_radar_sampling:
        place = place.flip(-1)
    height, width = features.shape[2:]
    column, row = place[..., 0] * (width - 1), place[..., 1] * (height - 1)
    flat = features.flatten(2)
    read = flat.new_zeros(())
    # Four gathers and not grid_sample, whose backward pass adds in no fixed order on GPUs.
    for row_step, column_step in ((0, 0), (0, 1), (1, 0), (1, 1)):
        y, x = row.floor() + row_step, column.floor() + column_step
        inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
        share = (1 - (row - y).abs()) * (1 - (column - x).abs()) * inside
        index = y.clamp(0, height - 1).long() * width + x.clamp(0, width - 1).long()
        read = read + flat.gather(2, index[:, None].expand(-1, flat.shape[1], -1)) * share[:, None]
    return read.transpose(1, 2)


def visible_bev(config: LeadConfig, device: torch.device | str = "cpu") -> Tensor:
    """Returns the (H, W) mask of BEV pixels inside the cameras' joint view; with three cameras all of it.

    The view is a wedge of 60 degrees a camera and 5 more, centred on the driving direction; of a declared rig it is
    what its used cameras see.
    """
    height, width = config.lidar_height_pixel, config.lidar_width_pixel
    if not config.cameras and config.num_used_cameras >= 3:
        return torch.ones(height, width, dtype=torch.bool, device=device)
    x = torch.arange(width, dtype=torch.float64, device=device) / config.pixels_per_meter + config.min_x_meter
    y = torch.arange(height, dtype=torch.float64, device=device) / config.pixels_per_meter + config.min_y_meter
    if config.cameras:
        used = [camera for camera, on in zip(config.cameras, config.used_cameras, strict=True) if on]
        return sees(used, x[None, :], y[:, None])
    half_angle = torch.deg2rad(torch.tensor(30.0 * config.num_used_cameras + 2.5, dtype=torch.float64))
    return torch.atan2(y[:, None].abs(), x[None, :]) <= half_angle.to(device)
