"""The sections `model`, `loss`, `optimizer` and `scheduler` of the recipe's config."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from lead_trainer.contract.training_keys import Count, CountOrZero, Fraction, Positive, PositiveOrZero
from lead_trainer.recipes.nuplan.data_keys import TASKS, Section, Share


class ModelKeys(Section):
    """The section `model`."""

    # --- cameras
    backbone: Annotated[str, Field(min_length=1)] = "resnet34"  # timm's name, of a ResNet; one for all cameras
    image_stride: Literal[8, 16] = 16  # pixels of a place of the lifted map
    image_channels: Count = 64  # of a place that is lifted
    depth_bins: Annotated[int, Field(ge=2)] = 48  # distances at which it may lie
    depth_range_m: Annotated[tuple[Positive, Positive], Field(strict=False)] = (1.0, 60.0)  # first and last of them
    normalise: Literal["fitted", "imagenet"] = "fitted"  # pictures by statistics of the training set, or ImageNet's

    # --- lidar
    pillar_channels: Count = 64  # of a pillar
    height_range_m: Annotated[tuple[float, float], Field(strict=False)] = (-2.0, 4.0)  # of points, above the rear axle

    # --- seen from above
    bev_channels: Count = 128  # of a cell
    bev_blocks: Count = 3  # residual blocks over both sensors; each from the second on sees twice as far

    # --- ways
    modes: Count = 2  # ways of each agent
    actor_width: Count = 128  # numbers of an agent
    actor_layers: CountOrZero = 2  # of attention between agents
    actor_heads: Count = 4  # of each such layer
    max_detections: Count = 64  # boxes that are taken from a heat map
    least_score: Share = 0.05  # of such a box

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.actor_width % self.actor_heads:
            raise ValueError(f"actor_heads is {self.actor_heads}, expected a divisor of actor_width {self.actor_width}")
        for name in ("depth_range_m", "height_range_m"):
            low, high = getattr(self, name)
            if low >= high:
                raise ValueError(f"{name} is [{low}, {high}], expected the lower bound first")
        return self


class LossKeys(Section):
    """The section `loss`: each weight multiplies a term that 0 removes."""

    weighting: Literal["static", "learned"] = "static"  # of tasks; learned: the weights below are not used
    detection_weight: PositiveOrZero = 1.0  # heat map and boxes
    segmentation_weight: PositiveOrZero = 1.0  # cross-entropy and dice of map layers
    occupancy_weight: PositiveOrZero = 1.0  # cross-entropy of known cells
    prediction_weight: PositiveOrZero = 1.0  # ways of agents
    box_weight: PositiveOrZero = 0.25  # of boxes within detection
    dice_weight: PositiveOrZero = 1.0  # of dice within segmentation
    nll_weight: PositiveOrZero = 0.1  # of the Gaussian within prediction
    ade_weight: PositiveOrZero = 1.0  # of the mean distance within prediction
    fde_weight: PositiveOrZero = 0.5  # of the last distance within prediction
    mode_weight: PositiveOrZero = 0.5  # of naming the best mode within prediction
    motion_weight: PositiveOrZero = 0.1  # of heading and speed within prediction
    imitation: bool = False  # also teaches the ego's own way
    imitation_weight: PositiveOrZero = 1.0  # of that term

    @property
    def task_weights(self) -> dict[str, float]:
        """The weight of each task."""
        return {task: getattr(self, f"{task}_weight") for task in TASKS}


class OptimizerKeys(Section):
    """The section `optimizer`."""

    type: Literal["adamw"] = "adamw"  # the guide names no other
    lr: Positive = 2e-4  # learning rate
    backbone_lr: Positive | None = None  # of the image network; null: lr
    weight_decay: PositiveOrZero = 0.01  # of every parameter but norms and biases
    betas: Annotated[tuple[Fraction, Fraction], Field(strict=False)] = (0.9, 0.999)  # of Adam's moments


class SchedulerKeys(Section):
    """The section `scheduler`."""

    type: Literal["cosine", "step", "constant"] = "cosine"  # after the warm-up
    warmup_steps: CountOrZero = 500  # optimizer steps until the rate is reached
    min_lr_share: Share = 0.01  # of the rate, at the end of a cosine
    step_epochs: Count = 8  # epochs between falls of a step
    step_factor: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1  # of the rate at each fall
