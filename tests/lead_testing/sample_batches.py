"""Random batches of the recipe `lead` in the shapes of any config, for tests that need no dataset."""

import torch
from torch import Tensor

from lead_trainer.recipes.lead.config import LeadConfig


def random_batch(config: LeadConfig, batch: int = 2, seed: int = 0) -> dict[str, Tensor]:
    """Returns inputs and labels of `batch` CARLA samples."""
    generator = torch.Generator().manual_seed(seed)

    streams = (generator, torch.Generator().manual_seed(seed + 1))  # the second for what came later

    def uniform(*shape: int, low: float = 0.0, high: float = 1.0, stream: int = 0) -> Tensor:
        return low + (high - low) * torch.rand(batch, *shape, generator=streams[stream])

    def classes(count: int, *shape: int) -> Tensor:
        return torch.randint(count, (batch, *shape), generator=generator)

    picture = (config.final_image_height, config.final_image_width)
    bev = (config.lidar_height_pixel, config.lidar_width_pixel)
    points = config.num_radar_sensors * config.num_radar_points_per_sensor
    sensors = torch.arange(points) // config.num_radar_points_per_sensor
    commands = config.discrete_command_dim
    radar = torch.cat((uniform(points, 4, low=1, high=30), sensors.expand(batch, -1)[..., None]), dim=-1)
    return {
        "rgb": classes(256, 3, *picture).to(torch.uint8),
        "rasterized_lidar": classes(6, 1, *bev) / 5,
        "radar": radar,
        "speed": uniform(high=20.0),
        "acceleration": uniform(low=-3.0, high=3.0, stream=1),
        "command": torch.nn.functional.one_hot(classes(commands), commands).double(),
        "target_point": uniform(2, high=50.0).double(),
        "target_point_previous": uniform(2, low=-50.0, high=0.0).double(),
        "target_point_next": uniform(2, low=50.0, high=90.0).double(),
        "semantic": classes(config.num_semantic_classes, *picture).to(torch.uint8),
        "depth": uniform(*picture, high=50.0),
        "bev_semantic": classes(config.num_bev_semantic_classes, *bev).to(torch.uint8),
        **_center_net(config, classes(config.num_bb_classes), batch),
        "radar_detections": uniform(config.num_radar_queries, 4, high=20.0).where(
            torch.tensor([True, True, True, False]), classes(2, config.num_radar_queries, 1)
        ),
        "future_waypoints": uniform(config.num_way_points_prediction, 2, high=2.0).cumsum(dim=1).double(),
        "route": uniform(config.num_route_points_prediction, 2).cumsum(dim=1).double(),
        "target_speed": uniform(high=19.0).double(),
        "brake": torch.arange(batch) % 2 == 1,
        "source_dataset": torch.ones(batch, dtype=torch.int64),
        "past_positions": uniform(config.num_past_samples_used, 2, low=-20.0, high=0.0, stream=1).double(),
        "past_speeds": uniform(config.num_past_samples_used, 1, high=20.0, stream=1).double(),
    }


def _center_net(config: LeadConfig, box_classes: Tensor, batch: int) -> dict[str, Tensor]:
    """Returns the label maps of one box a sample."""
    grid = (config.bev_grid_height, config.bev_grid_width)
    row, column = grid[0] // 2, grid[1] // 2
    channels = {"heatmap": config.num_bb_classes, "wh": 2, "offset": 2, "pixel_weight": 2, "yaw_res": 1, "velocity": 1}
    maps = {f"center_net_{name}": torch.zeros(batch, count, *grid) for name, count in channels.items()}
    for name in channels:
        maps[f"center_net_{name}"][:, :, row, column] = 0 if name == "heatmap" else 1
    maps["center_net_heatmap"][torch.arange(batch), box_classes, row, column] = 1
    maps["center_net_yaw_class"] = torch.ones(batch, *grid, dtype=torch.int32)
    maps["center_net_avg_factor"] = torch.ones(batch, dtype=torch.int64)
    return maps
