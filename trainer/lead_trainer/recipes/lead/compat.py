"""Where we differ from LEAD on purpose and the difference changes numbers: one switch each, read wherever it applies.

`compat: lead` in a config switches all of them on; then losses, gradients and steps equal LEAD's.
"""

from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict


class Compat(BaseModel):
    """Which of LEAD's behaviours are brought back; none by default."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True, strict=True)

    integer_depth_labels: bool = False  # depth labels are truncated to whole metres
    phantom_padded_boxes: bool = False  # padding rows leave a VEHICLE peak in cell (0, 0)
    depth_with_semantic_alone: bool = False  # without the semantic head depth has no loss, and still a weight
    bf16_labels: bool = False  # under bf16, labels and target points are rounded to bf16 (0.25 m beyond 32 m)
    diluted_bev_semantic: bool = False  # BEV pixels out of view count as zeros in the mean
    transposed_radar_sampling: bool = False  # radar points read the BEV features at (y, x) instead of (x, y)
    unmasked_radar_padding: bool = False  # zero-padded radar points are ordinary tokens
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
