"""The config values that LEAD's preparation of CARLA reads."""

from dataclasses import dataclass, replace
from typing import Any, Self

from lead_trainer.recipes.lead.ingest.route_tree import OPTIONAL_FOLDERS
from lead_trainer.recipes.prepare_keys import DigestedKeys


@dataclass(frozen=True)
class PreparationKeys(DigestedKeys):
    """LEAD's key names; sizes in pixels, lengths in metres."""

    carla_leaderboard_mode: bool  # CARLA alone; beside real data, labels distinguish fewer kinds of cars and obstacles
    image_height: int
    image_width: int
    pixels_per_meter: float
    min_x_meter: int
    max_x_meter: int
    min_y_meter: int
    max_y_meter: int
    training_used_lidar_steps: int
    hist_max_per_pixel: int
    min_height_lidar: float
    max_height_lidar: float
    num_radar_sensors: int
    num_radar_queries: int
    use_sensor_perburtation: bool
    use_semantic: bool
    use_depth: bool
    use_bev_semantic: bool
    max_num_bbs: int
    min_z: float
    max_z: float
    vehicle_min_num_lidar_points: int
    vehicle_min_num_visible_pixels: int
    pedestrian_min_num_lidar_points: int
    pedestrian_min_num_visible_pixels: int
    parking_vehicle_min_num_lidar_points: int
    parking_vehicle_min_num_visible_pixels: int
    data_bb_static_types_white_list: tuple[str, ...]
    car_open_door_extra_width: float
    scale_pedestrian_bev_semantic_size: float
    pedestrian_bev_min_extent: float
    skip_first_pretrain: int
    skip_last_pretrain: int
    skip_first_posttrain: int
    skip_last_posttrain: int
    tp_pop_distance: float

    @classmethod
    def of(cls, config: Any) -> Self:
        """Takes the preparation's values out of a whole config; without `use_radars` no radar file is read."""
        keys = super().of(config)
        return keys if config.use_radars else replace(keys, num_radar_sensors=0)

    @property
    def unread_folders(self) -> tuple[str, ...]:
        """Folders of a route that nothing is read from; a tree may lack them."""
        read = {**vars(self), "use_radars": self.num_radar_sensors > 0}
        return tuple(folder for key, folders in OPTIONAL_FOLDERS.items() if not read[key] for folder in folders)

    @property
    def bev_width(self) -> int:
        """Pixels along x."""
        return int((self.max_x_meter - self.min_x_meter) * self.pixels_per_meter)

    @property
    def bev_height(self) -> int:
        """Pixels along y."""
        return int((self.max_y_meter - self.min_y_meter) * self.pixels_per_meter)
