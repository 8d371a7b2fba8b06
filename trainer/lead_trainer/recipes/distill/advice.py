"""The training guide's troubleshooting as watch rules; each replaces the engine's rule of its name."""

from collections.abc import Mapping, Sequence

from lead_trainer.contract.reports import WatchRule
from lead_trainer.engine.reporting.watch import divergence, slow_loading
from lead_trainer.recipes.distill.config import DistillConfig

RECOMMENDED_LR = 5e-5  # where the loss is not a number, or grows
RECOMMENDED_WORKERS = 8


def slow_frames(history: Sequence[Mapping[str, float]]) -> str | None:
    """Training waits for pictures."""
    advice = slow_loading(history)
    return advice and (
        f"{advice.partition(';')[0]}; set num_workers={RECOMMENDED_WORKERS}, and extract frames before training "
        "instead of streaming them"
    )


def rising_loss(history: Sequence[Mapping[str, float]]) -> str | None:
    """The loss grows."""
    advice = divergence(history)
    return advice and (
        f"{advice.partition(';')[0]}; try lr={RECOMMENDED_LR:g} and grad_clip=1.0, and check the report of "
        "merge_shards on the labels"
    )


def fresh_frozen_norms(config: DistillConfig) -> str | None:
    """The backbone shall keep statistics that nobody has measured."""
    if not config.freeze_batchnorm or config.load_file or config.backbone_weights or config.input_type == "vector":
        return None
    return (
        "freeze_bn: the backbone keeps the statistics it begins with, mean 0 and variance 1 unless this stage begins "
        "with another's weights; set backbone_weights or load_file, or leave freeze_bn out"
    )


GUIDE_RULES = (WatchRule("slow-loading", slow_frames), WatchRule("divergence", rising_loss))
