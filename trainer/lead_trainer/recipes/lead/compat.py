"""Where LEAD's behaviour can be mended and the mending changes numbers: one switch each, read wherever it applies.

A trained network computes what LEAD's computes by default, because LEAD's evaluation runs our weights by
LEAD's code. `compat: lead` switches the rest on too; then losses, gradients and steps equal LEAD's. `compat: fixed`
switches all off.
"""

from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict


class Compat(BaseModel):
    """Which of LEAD's behaviours hold; by default those of the forward pass and of the schedule."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True, strict=True)

    # of the forward pass: weights trained without them give other outputs in LEAD's evaluation
    transposed_radar_sampling: bool = True  # radar points read the BEV features at (y, x) instead of (x, y)
    unmasked_radar_padding: bool = True  # zero-padded radar points are ordinary tokens
    unread_past: bool = True  # the planner's encoders of the past are not asked: its speed token takes their places
    # of the number of steps, with which the learning rate falls
    one_set_mixed_epochs: bool = True  # an epoch on several data sets has as many steps as one on the first of them
    # of training alone
    integer_depth_labels: bool = False  # depth labels are truncated to whole metres
    phantom_padded_boxes: bool = False  # padding rows leave a VEHICLE peak in cell (0, 0)
    depth_with_semantic_alone: bool = False  # without the semantic head depth has no loss, and still a weight
    # Of LEAD's other roundings there is no switch: it also adds losses in bf16 and rounds what norm layers give.
    bf16_labels: bool = False  # under bf16, labels and target points are rounded to bf16 (0.25 m beyond 32 m)
    diluted_bev_semantic: bool = False  # BEV pixels out of view count as zeros in the mean
    unmasked_radar_loss: bool = False  # samples without radar labels enter the radar loss
    lagging_lr: bool = False  # each optimizer step uses the learning rate of the step before
    fixed_restart_lengths: bool = (
        False  # LR cycles of 1, 2, 4, … epochs wherever the run ends, not stretched to its end
    )
    fixed_epoch_order: bool = False  # every epoch replays the order of epoch 0
    painted_hdmap: bool = False  # the sample's `hdmap` also holds the occupancy, as it is the array of `bev_semantic`

    @classmethod
    def lead(cls) -> Self:
        """Returns LEAD's behaviour in every point."""
        return cls(**dict.fromkeys(cls.model_fields, True))

    @classmethod
    def fixed(cls) -> Self:
        """Returns LEAD's behaviour in no point."""
        return cls(**dict.fromkeys(cls.model_fields, False))

    @classmethod
    def written_out(cls, given: Any) -> Any:
        """Returns `lead` and `fixed` as a mapping with every switch; everything else unchanged."""
        if given == "lead":
            return cls.lead().model_dump()
        return cls.fixed().model_dump() if given == "fixed" else given

    @property
    def mended_forward(self) -> tuple[str, ...]:
        """Names the switches that give a trained network other outputs than LEAD's code computes with its weights."""
        forward = ("transposed_radar_sampling", "unmasked_radar_padding", "unread_past")
        return tuple(name for name in forward if not getattr(self, name))
