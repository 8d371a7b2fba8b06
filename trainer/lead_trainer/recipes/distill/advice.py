"""The training guide's troubleshooting as watch rules; each replaces the engine's rule of its name."""

from collections.abc import Mapping, Sequence

from lead_trainer.engine.watch import divergence, slow_loading
from lead_trainer.recipes.recipe import WatchRule

RECOMMENDED_LR = 5e-5  # where the loss is not a number, or grows
RECOMMENDED_WORKERS = 8


def slow_frames(history: Sequence[Mapping[str, float]]) -> str | None:
    """Training waits for pictures."""
    said = slow_loading(history)
    return said and (
        f"{said.partition(';')[0]}; set num_workers={RECOMMENDED_WORKERS}, and extract frames before training instead "
        "of streaming them"
    )


def rising_loss(history: Sequence[Mapping[str, float]]) -> str | None:
    """The loss grows."""
    said = divergence(history)
    return said and (
        f"{said.partition(';')[0]}; try lr={RECOMMENDED_LR:g} and grad_clip=1.0, and look at what merge_shards says of "
        "the labels"
    )


GUIDE_RULES = (WatchRule("slow-loading", slow_frames), WatchRule("divergence", rising_loss))
