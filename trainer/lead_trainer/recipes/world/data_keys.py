"""The sections `data` and `curriculum` of the recipe's config: what a cache is made of, and how windows are drawn.

Names and defaults are those of the training guide's `configs/training/base.yaml` and `configs/data/*.yaml` where it has
them. Keys of `prepare_keys.WorldKeys` enter the cache's digest; all others may differ between runs over one cache.
"""

from typing import Annotated, ClassVar, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from lead_trainer.contract.training_keys import Count, CountOrZero, Fraction, Positive

Side = Annotated[int, Field(ge=8, le=4096)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]

# Of the section `data`, the keys that teach nothing: they may differ between a checkpoint and the run that resumes it.
NOT_LEARNED = ("num_workers", "pin_memory")


class Section(BaseModel):
    """A part of a config that knows its keys and no others."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class AugmentationKeys(Section):
    """One draw a window of the training split; 0, and a scale of [1, 1], turn a part off."""

    brightness: Fraction = 0.2  # pictures are multiplied by 1 ± this
    contrast: Fraction = 0.2  # distances to the window's mean brightness are multiplied by 1 ± this
    crop_scale: Annotated[tuple[Positive, Positive], Field(strict=False)] = (0.8, 1.0)  # sides of the part that is kept
    flip: Share = 0.5  # share of windows that are mirrored, with the steering negated

    @model_validator(mode="after")
    def _scales_in_order(self) -> Self:
        low, high = self.crop_scale
        if not low <= high <= 1.0:
            raise ValueError(f"crop_scale is [{low}, {high}], expected [low, high] with 0 < low <= high <= 1")
        return self


class DataKeys(Section):
    """The section `data`."""

    # --- windows
    sequence_length: Annotated[int, Field(ge=2)] = 10  # frames of a window; it has one action less
    frame_skip: Count = 1  # every n-th frame of a scene is used; 2: every second one, actions averaged
    augmentation: AugmentationKeys = AugmentationKeys()

    # --- loading
    num_workers: CountOrZero = 4  # loader threads; 0: one a core
    pin_memory: bool = True  # batches in page-locked memory where there is a GPU

    # --- preparation
    dataset: Literal["auto", "nuscenes", "carla", "processed"] = "auto"  # auto: by the folders of the tree
    version: str = ""  # folder of nuScenes' tables; empty: the only one of the tree
    camera: Annotated[str, Field(min_length=1)] = "CAM_FRONT"  # of nuScenes
    frames: Literal["keyframes", "sweeps"] = "keyframes"  # of nuScenes: 2 Hz, or 12 Hz with the sweeps between
    image_size: Annotated[tuple[Side, Side], Field(strict=False)] = (256, 256)  # height, width
    crop: Literal["none", "centre"] = "none"  # none: pictures are squeezed; centre: the largest part of that aspect
    split: Literal["auto", "official", "seeded"] = "auto"  # auto: official where every scene's name is in the lists
    val_share: Fraction = 0.2  # of the scenes, where the split is seeded
    split_seed: CountOrZero = 0  # of the seeded split


class CurriculumKeys(Section):
    """The section `curriculum`: windows by the difficulty of their scene, a third of them after another."""

    enabled: bool = False  # trains a third of the windows after the other, the easiest first
    epochs_per_phase: Count = 20  # epochs of each of the three thirds; all windows after the last one


class ReadsWindows(Protocol):
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

    @property
    def curriculum(self) -> CurriculumKeys:
        """The section `curriculum`."""
