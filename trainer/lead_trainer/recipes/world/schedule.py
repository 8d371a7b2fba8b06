"""The learning rate of each part of the model at a step: a linear warm-up, then a cosine that ends at one rate for all.

A part's factor depends on its own rate, because every part ends at the same `min_lr`.
"""

from collections.abc import Mapping

from lead_trainer.contract.step import Position
from lead_trainer.engine.step.schedule import cosine
from lead_trainer.recipes.world.config import WorldConfig


def lr_factor(config: WorldConfig, at: Position) -> Mapping[str, float]:
    """Returns the factor of each part's own rate at a step."""
    warmup, least = config.scheduler.warmup_steps, config.scheduler.min_lr
    if at.step < warmup:
        return dict.fromkeys(config.optimizer.rates(), (at.step + 1) / warmup)
    rest = max(at.steps - warmup, 1)
    falls = config.scheduler.type == "cosine"
    return {
        part: cosine(rest, min(least / rate, 1.0))(at.step - warmup) if falls else 1.0
        for part, rate in config.optimizer.rates().items()
    }
