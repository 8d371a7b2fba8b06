"""Weights of an earlier stage in a fresh model: whole heads may be left over or missing, nothing else."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import structlog

from lead_trainer.contract.step import Facts
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.parameter_names import foreign_weights

if TYPE_CHECKING:
    import torch

BACKBONE, PLANNER = "backbone", "planning_decoder"  # what every stage has, what no pretrain stage has

log = structlog.get_logger(__name__)


def load_initial_weights(model: "torch.nn.Module", config: LeadConfig, facts: Facts, state: Mapping[str, Any]) -> None:
    """Loads an earlier stage's weights, of which heads as a whole may be left over or missing; raises BadConfig.

    A head that they lack begins fresh, with a warning unless it is the planner.
    """
    if fault := foreign_weights(model.state_dict(), state):
        raise BadConfig(f"load_file: {fault}")
    left = [name for name in state if getattr(model, part_of(name), model) is None]
    try:
        missing, unexpected = model.load_state_dict(
            {name: value for name, value in state.items() if name not in left}, strict=False
        )
    except RuntimeError as error:
        raise BadConfig(f"load_file: its weights are of another shape: {str(error).splitlines()[1].strip()}") from error
    begun = {BACKBONE, *map(part_of, state)}
    lacking = [name for name in missing if part_of(name) in begun]
    for what, names in (("lack", lacking), ("also hold", unexpected)):
        if names:
            raise BadConfig(
                f"load_file: its weights {what} {len(names)} parameters, such as {names[0]}; "
                "give this stage the architecture keys of the stage it starts from"
            )
    fresh = [name for name in missing if part_of(name) != PLANNER]
    for what, names in (
        ("weights left out of heads that this stage does not have", left),
        ("its weights have none for these heads, which begin with random ones", fresh),
    ):
        if names:
            log.warning(f"load_file: {what}: {', '.join(sorted(set(map(part_of, names))))}")


def part_of(name: str) -> str:
    """Returns the part of the model, the backbone or a head, that a parameter is of."""
    return name.split(".")[0]
