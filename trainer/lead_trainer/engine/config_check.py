"""What can be wrong with a run's config without any data: checked before a cache is built or a manifest is applied."""

from pathlib import Path
from typing import Any

from lead_trainer.data.node_shares import refuse_uneven_sections
from lead_trainer.data.process_loader import loader_named
from lead_trainer.data.sample_order import rank_batch_size
from lead_trainer.engine.clip import Clipper
from lead_trainer.engine.ema import WeightAverage
from lead_trainer.engine.epoch_plan import EpochPlan
from lead_trainer.engine.memory import save_memory
from lead_trainer.engine.ranking import ranking_of
from lead_trainer.recipes.recipe import Recipe, Validates
from lead_trainer.weights_file import read_weights_file

_STEPS = 1000  # an epoch, for a schedule that is only asked whether it can be made


def check_shape(recipe: Recipe, config: Any, *, epochs: int, ranks: int) -> None:
    """Raises BadConfig for values that the loop cannot use with so many processes; makes no model."""
    shape = recipe.shape(config)
    EpochPlan(1, rank_batch_size(shape.batch_size, ranks), shape.accumulate_steps, 1)
    Clipper(shape.grad_clip_norm, shape.grad_clip_quantile, shape.grad_clip_history)
    refuse_uneven_sections(shape.batch_size, shape.canonical_nodes)
    loader_named(shape.loader)
    ranking_of(shape, validates=isinstance(recipe, Validates))  # whether the data have a split is known with them
    recipe.lr_factor(config, 0, _STEPS, max(1, epochs))


def check_model(recipe: Recipe, config: Any, initial_weights: Path | None = None) -> None:
    """Makes model and optimizer as an attempt does, and lets go of them; raises BadConfig where they cannot be made."""
    model, shape = recipe.model(config), recipe.shape(config)
    if initial_weights is not None:
        recipe.load_initial_weights(model, config, read_weights_file(initial_weights, "load_file"))
    if shape.gradient_checkpointing:
        save_memory(model)
    if shape.ema_decay:
        WeightAverage(model, shape.ema_decay)
    recipe.optimizer(model, config)
