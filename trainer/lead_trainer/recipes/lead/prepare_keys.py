"""The config values the preparation reads: these and no others, because it is handed nothing else.

Every value enters the digest of the cache. Made from a `LeadConfig` when a cache is built, and again when it is read,
to refuse a run whose sizes differ from the cache's.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from lead_trainer.recipes.lead.config import LeadConfig


@dataclass(frozen=True)
class PreparationKeys:
    """LEAD's key names; sizes in pixels, lengths in metres."""

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
    def of(cls, config: LeadConfig) -> Self:
        """Takes the preparation's values out of a whole config."""
        return cls(**{field.name: getattr(config, field.name) for field in fields(cls)})

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Takes them from what a manifest holds; JSON turned tuples into lists."""
        plain = {field.name: values[field.name] for field in fields(cls)}
        plain["data_bb_static_types_white_list"] = tuple(plain["data_bb_static_types_white_list"])
        return cls(**plain)

    def as_mapping(self) -> dict[str, Any]:
        """Returns the values by key, as they enter the digest."""
        return {**asdict(self), "data_bb_static_types_white_list": list(self.data_bb_static_types_white_list)}

    @property
    def bev_width(self) -> int:
        """Pixels along x."""
        return int((self.max_x_meter - self.min_x_meter) * self.pixels_per_meter)

    @property
    def bev_height(self) -> int:
        """Pixels along y."""
        return int((self.max_y_meter - self.min_y_meter) * self.pixels_per_meter)
