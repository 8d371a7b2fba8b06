"""What is measured on the validation split: losses, and metrics of all four tasks, with true and detected agents."""

import torch
from torch import nn

from lead_trainer.contract.samples import Batch
from lead_trainer.contract.step import StepContext
from lead_trainer.contract.validation import Evaluation
from lead_trainer.recipes.nuplan.config import NuplanConfig
from lead_trainer.recipes.nuplan.losses import compute_losses
from lead_trainer.recipes.nuplan.metrics import add_boxes, add_detected_ways, add_grids, add_ways
from lead_trainer.recipes.nuplan.model import NuplanModel
from lead_trainer.recipes.nuplan.pictures import overview


def evaluate(model: nn.Module, batch: Batch, context: StepContext[NuplanConfig]) -> Evaluation:
    """Returns what one validation batch adds; a picture of the first one."""
    assert isinstance(model, NuplanModel)
    config, states = context.config, context.metrics
    outputs = model(batch)
    found = model.detected(outputs)
    report = compute_losses(config, outputs, batch, getattr(model, "log_variances", {}))
    add_grids(states, outputs, batch, context.facts)
    add_boxes(states, found, batch)
    add_ways(states, outputs, batch, config.data)
    ways = model.ways_of(outputs["grid"], found, batch["ego_state"])
    add_detected_ways(states, ways, found, batch)
    count = len(batch["labelled"])
    totals: dict[str, tuple[torch.Tensor, torch.Tensor | int]] = {
        tag: (value.double() * count, count) for tag, value in {"loss": report.total, **report.parts}.items()
    }
    pictures = {} if context.micro_batch else {"val/overview": overview(config, batch, 0, outputs)}
    return Evaluation(totals, pictures=pictures)
