"""The learning rate of a step: a linear warm-up, then a cosine, a fall every few epochs, or neither."""

from lead_trainer.contract.step import Position
from lead_trainer.engine.step.schedule import cosine
from lead_trainer.recipes.nuplan.config import NuplanConfig


def lr_factor(config: NuplanConfig, at: Position) -> float:
    """Returns the factor of every rate at a step."""
    keys = config.scheduler
    if at.step < keys.warmup_steps:
        return (at.step + 1) / keys.warmup_steps
    if keys.type == "cosine":
        return cosine(max(at.steps - keys.warmup_steps, 1), keys.min_lr_share)(at.step - keys.warmup_steps)
    if keys.type == "step":
        return float(keys.step_factor ** (at.epoch // keys.step_epochs))
    return 1.0
