"""The section `data` of the recipe's config: the rig, the pictures, the grid, windows, and how samples are changed.

Keys that say what is in a cache enter its digest (`prepare_keys`); all others may differ between runs over one cache.
"""

from typing import Annotated, ClassVar, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from lead_trainer.contract.training_keys import Count, CountOrZero, Fraction, Positive, PositiveOrZero

CHANNELS = ("CAM_F0", "CAM_L0", "CAM_R0", "CAM_L1", "CAM_R1", "CAM_L2", "CAM_R2", "CAM_B0")  # of nuPlan
CLASSES = ("vehicle", "pedestrian", "bicycle")  # of boxes, in the order of `box_class`
LAYERS = ("drivable", "lane", "crosswalk", "walkway", "stop")  # of the map, in the order of `layers`
TASKS = ("detection", "segmentation", "occupancy", "prediction")  # in the order of `labelled`

Side = Annotated[int, Field(ge=16, le=4096)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Channel = Literal["CAM_F0", "CAM_L0", "CAM_R0", "CAM_L1", "CAM_R1", "CAM_L2", "CAM_R2", "CAM_B0"]
SIX_CAMERAS: tuple[Channel, ...] = ("CAM_F0", "CAM_L0", "CAM_R0", "CAM_L1", "CAM_R1", "CAM_B0")
Channels = Annotated[tuple[Channel, ...], Field(strict=False, min_length=1)]


class Section(BaseModel):
    """A part of a config that knows its keys and no others."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class AugmentationKeys(Section):
    """One draw a sample of the training split; 0 turns a part off."""

    brightness: Fraction = 0.2  # pictures are multiplied by 1 ± this
    contrast: Fraction = 0.2  # distances to the pictures' mean brightness are multiplied by 1 ± this
    saturation: Fraction = 0.2  # distances to grey are multiplied by 1 ± this
    flip: Share = 0.0  # share of samples that are mirrored left to right: pictures, lenses, points, boxes, map, ways
    point_dropout: Fraction = 0.0  # share of lidar points that are left out
    point_noise_m: PositiveOrZero = 0.0  # standard deviation of noise on lidar points


class DataKeys(Section):
    """The section `data`."""

    # --- rig
    cameras: Channels = SIX_CAMERAS  # channels, in the order of a sample's pictures
    image_size: Annotated[tuple[Side, Side], Field(strict=False)] = (540, 960)  # height, width
    max_camera_gap_ms: Positive = 50.0  # between a sweep and a channel's nearest picture
    lidar_rings: CountOrZero = 32  # lidar points of rings below this number; 0: all

    # --- frames and windows
    split: str = ""  # folder below splits/; empty: the only one of the tree
    scenes: Literal["valid", "all"] = "valid"  # valid: without the first and last two of a log, as the devkit has it
    val_share: Fraction = 0.2  # of the logs of each city
    split_seed: CountOrZero = 0  # of which logs these are
    window_s: Positive = 4.0  # seconds of a window; its first frame is the sample
    stride_s: Positive = 0.5  # seconds between the first frames of windows

    # --- grid and labels
    range_m: Positive = 50.0  # the grid reaches so far ahead, behind, left and right of the rear axle
    cell_m: Positive = 0.5  # side of a cell of the grid
    pillar_m: Positive = 0.2  # side of a pillar of lidar points
    future_steps: Count = 8  # poses of a way
    future_step_s: Positive = 0.5  # seconds between them
    max_agents: Count = 64  # boxes of a sample, the nearest

    augmentation: AugmentationKeys = AugmentationKeys()

    @property
    def grid_cells(self) -> int:
        """Cells a side of the grid."""
        return round(2 * self.range_m / self.cell_m)

    @property
    def pillar_cells(self) -> int:
        """Pillars a side of the grid."""
        return round(2 * self.range_m / self.pillar_m)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(set(self.cameras)) < len(self.cameras):
            twice = next(name for name in self.cameras if self.cameras.count(name) > 1)
            raise ValueError(f"cameras: {twice} is named twice; name each channel once")
        for name, side in (("cell_m", self.cell_m), ("pillar_m", self.pillar_m)):
            parts = 2 * self.range_m / side
            if round(parts) < 8 or abs(parts - round(parts)) > 1e-6:
                raise ValueError(
                    f"{name}: {side} m does not divide the {2 * self.range_m} m of range_m {self.range_m} into 8 whole "
                    "cells or more; change one"
                )
        return self


class ReadsSamples(Protocol):
    """The part of a run's config that its samples read."""

    @property
    def seed(self) -> int:
        """Of the augmentation."""

    @property
    def data_root(self) -> str:
        """The folder of the tree on this machine."""

    @property
    def data(self) -> DataKeys:
        """The section `data`."""
