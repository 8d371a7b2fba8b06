"""What can be wrong with a run's config without any data: checked before a cache is built or a manifest is applied."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from lead_trainer.contract.files import CheckpointAt
from lead_trainer.contract.recipe import Recipe, no_facts
from lead_trainer.contract.step import Facts, Position
from lead_trainer.data.node_shares import refuse_uneven_sections
from lead_trainer.data.process_loader import loader_named
from lead_trainer.data.sample_order import rank_batch_size
from lead_trainer.engine.attempt.memory import save_memory
from lead_trainer.engine.checkpoints.checkpoint import file_names
from lead_trainer.engine.samples.data_facts import known_facts
from lead_trainer.engine.step.clip import Clipper
from lead_trainer.engine.step.ema import WeightAverage
from lead_trainer.engine.step.epoch_plan import EpochPlan
from lead_trainer.engine.step.helper_networks import frozen_helpers
from lead_trainer.engine.step.precision import chosen_dtype
from lead_trainer.engine.step.ranking import ranking_of
from lead_trainer.engine.step.recipe_parts import made_metrics, made_model, made_optimizers, rate_factor
from lead_trainer.errors import BadConfig
from lead_trainer.weights_file import read_weights_file

if TYPE_CHECKING:
    from torchmetrics import Metric

_STEPS = 1000  # an epoch, for a schedule that is only asked whether it can be made


def check_config(recipe: Recipe[Any], config: Any, *, epochs: int, ranks: int) -> None:
    """Raises BadConfig for values that the loop cannot use with so many processes; makes no model."""
    EpochPlan(1, rank_batch_size(config.batch_size, ranks), config.gradient_accumulation_steps, 1)
    Clipper(config.grad_clip_norm, config.clip_quantile, config.grad_history_length)
    refuse_uneven_sections(config.batch_size, config.canonical_nodes)
    loader_named(config.loader)
    validates = recipe.validation is not None  # whether the data have a split is known with them
    ranking_of(config, validates=validates)
    chosen_dtype(config.number_format, torch.device("cpu"))
    at = Position(epoch_steps=(_STEPS,) * max(1, epochs))
    rate_factor(recipe, config, at)
    file_names(recipe, config, CheckpointAt(0, 0))


def check_model(recipe: Recipe[Any], config: Any, initial_weights: Path | None = None) -> None:
    """Makes model, helpers and optimizers as an attempt does, and lets go; raises BadConfig where one cannot be made.

    A recipe whose model needs facts of the data, and gives none to check with, is checked when it begins to train.
    """
    if recipe.facts is not no_facts and recipe.facts_without_data is None:
        return
    assumed = recipe.facts_without_data(config) if recipe.facts_without_data is not None else {}
    facts = known_facts(recipe, assumed, "facts_without_data")
    model = made_model(recipe, config, facts)
    if initial_weights is not None:
        check_initial_weights(recipe, config, model, facts, initial_weights)
    if config.saves_memory:
        save_memory(recipe, model)
    frozen_helpers(recipe, config, torch.device("cpu"))
    if config.average_decay:
        WeightAverage(model, config.average_decay)
    made_optimizers(recipe, model, config)
    if recipe.validation is not None:
        check_metrics(made_metrics(recipe, recipe.validation, config, facts))


def check_initial_weights(recipe: Recipe[Any], config: Any, model: torch.nn.Module, facts: Facts, path: Path) -> None:
    """Raises BadConfig unless the weights fit the model.

    Where facts were assumed, sizes alone prove nothing: they may follow from the data (classes), as soon as these are
    read.
    """
    state = read_weights_file(path, "load_file")
    try:
        recipe.load_initial_weights(model, config, facts, state)
    except BadConfig:
        if recipe.facts is no_facts or state.keys() != model.state_dict().keys():
            raise


def check_metrics(metrics: "Mapping[str, Metric]") -> None:
    """Raises BadConfig for a metric whose states cannot be merged over ranks."""
    if metrics:  # torchmetrics takes seconds to import, and is for those alone who have some
        from lead_trainer.engine.validation.metric_states import refuse_no_merge

        for name, metric in metrics.items():
            refuse_no_merge(name, metric)
