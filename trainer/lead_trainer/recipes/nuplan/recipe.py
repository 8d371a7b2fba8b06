"""The recipe `nuplan` as one value: what is around the ego, and where it goes, from six cameras and a lidar.

What trains is imported when it is called: preparing data does not wait for torch.
"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.reports import Picture, Reports, WandbKeys, WatchRule
from lead_trainer.contract.samples import Batch, Caches, Sample, Samples
from lead_trainer.contract.step import Facts, StepContext, StepOutput
from lead_trainer.contract.trees import Trees
from lead_trainer.contract.validation import Evaluation, Validation
from lead_trainer.recipes.nuplan.config import NuplanConfig
from lead_trainer.recipes.nuplan.config_values import KEYS
from lead_trainer.recipes.nuplan.preparation import NuplanPreparation
from lead_trainer.recipes.nuplan.schedule import lr_factor
from lead_trainer.recipes.nuplan.trees import layout_fault, source_root

if TYPE_CHECKING:
    import torch
    import torchmetrics


def samples(config: NuplanConfig, caches: Caches) -> Samples:
    """Returns the samples of training."""
    from lead_trainer.recipes.nuplan.dataset import training_samples

    return training_samples(config, caches)


def held_out_samples(config: NuplanConfig, caches: Caches) -> Samples:
    """Returns the samples of validation."""
    from lead_trainer.recipes.nuplan.dataset import validation_samples

    return validation_samples(config, caches)


def collate(samples: Sequence[Sample]) -> Batch:
    """Returns samples as a batch, with agents and points of as many rows as the largest."""
    from lead_trainer.recipes.nuplan.dataset_collate import collate

    return collate(samples)


def facts(config: NuplanConfig, caches: Caches) -> Facts:
    """Returns colours of the training pictures, and how much of the grid each map layer fills."""
    from lead_trainer.recipes.nuplan.data_facts import data_facts
    from lead_trainer.recipes.nuplan.dataset import FrameSamples

    (cache,) = caches.values()
    return data_facts(config, FrameSamples(config, cache, "train", training=False))


def model(config: NuplanConfig, facts: Facts) -> "torch.nn.Module":
    """Returns a model with fresh weights."""
    from lead_trainer.recipes.nuplan.model import build_model

    return build_model(config, facts)


def save_memory(model: "torch.nn.Module") -> None:
    """Makes the image network and the fusion run twice in training."""
    from lead_trainer.recipes.nuplan.model import NuplanModel

    assert isinstance(model, NuplanModel)
    model.save_memory()


def optimizer(model: "torch.nn.Module", config: NuplanConfig) -> "torch.optim.Optimizer":
    """Returns AdamW; the image network may have a rate of its own."""
    from lead_trainer.engine.step.optim import AdamWSettings, make_adamw

    keys = config.optimizer
    rates = {"image": keys.backbone_lr} if keys.backbone_lr is not None else {}
    settings = AdamWSettings(
        lr=keys.lr, weight_decay=keys.weight_decay, betas=keys.betas, decay_norms_and_biases=False, group_lrs=rates
    )
    return make_adamw(model, settings)


def on_device(batch: Batch, config: NuplanConfig) -> Batch:
    """Returns the batch with the channels of its pictures separated, (B, C, 3, H, W)."""
    return {**batch, "images": batch["images"].movedim(-1, -3).contiguous()}


def step(model: "torch.nn.Module", batch: Batch, context: StepContext[NuplanConfig]) -> StepOutput:
    """Runs forward pass and losses."""
    from lead_trainer.recipes.nuplan.losses import compute_losses

    outputs, bare = model(batch), getattr(model, "module", model)
    log_variances = getattr(bare, "log_variances", {})
    report = compute_losses(context.config, outputs, batch, log_variances)
    parts = {tag: value.detach() for tag, value in report.parts.items()}
    learned = {f"log_variance/{task}": value.detach() for task, value in log_variances.items()}
    return StepOutput(report.total, parts, learned, outputs)


def evaluate(model: "torch.nn.Module", batch: Batch, context: StepContext[NuplanConfig]) -> Evaluation:
    """Returns what one validation batch adds."""
    from lead_trainer.recipes.nuplan.validation import evaluate

    return evaluate(model, batch, context)


def metrics(config: NuplanConfig, facts: Facts) -> "Mapping[str, torchmetrics.Metric]":
    """Returns the states of the metrics of all tasks."""
    from lead_trainer.recipes.nuplan.metrics import metric_states

    return metric_states()


def pictures(config: NuplanConfig, batch: Batch, outputs: Any) -> Mapping[str, Picture]:
    """Returns the first sample of a training batch: cameras, truth, prediction."""
    from lead_trainer.recipes.nuplan.pictures import overview

    return {"train/overview": overview(config, batch, 0, outputs)}


def watch_rules(config: NuplanConfig) -> Sequence[WatchRule]:
    """Returns the recipe's advice."""
    from lead_trainer.recipes.nuplan.advice import watch_rules

    return watch_rules(config)


def warnings(config: NuplanConfig) -> Sequence[str]:
    """Returns what is reported before a local run begins."""
    from lead_trainer.recipes.nuplan.advice import warnings

    return warnings(config)


def next_command(config: NuplanConfig, weights: Path, logdir: Path, chosen: Mapping[str, str]) -> str:
    """Returns how these weights are measured."""
    return f"report: lead evaluate {shlex.quote(str(weights))}"


SHOWN = (
    "mAP", "mIoU", "ADE", "FDE", "miss_rate", "collision_rate", "occupancy_accuracy", "occupancy_recall",
    "mode_recall", "mode_precision", "trans_error", "orient_error", "vel_error", "ADE_detected", "mIoU_majority",
    "ADE_constant_velocity",
)  # fmt: skip

RECIPE = Recipe[NuplanConfig](
    name="nuplan",
    config_model=NuplanConfig,
    preparation=NuplanPreparation(),
    samples=samples,
    facts=facts,
    facts_without_data=lambda config: {},
    model=model,
    save_memory=save_memory,
    optimizer=optimizer,
    lr_factor=lr_factor,
    collate=collate,
    on_device=on_device,
    step=step,
    validation=Validation(samples=held_out_samples, evaluate=evaluate, metrics=metrics, shown=SHOWN),
    keys=KEYS,
    trees=Trees(root=source_root, layout_fault=layout_fault),
    reports=Reports(
        pictures=pictures,
        watch_rules=watch_rules,
        warnings=warnings,
        next_command=next_command,
        wandb=lambda config: WandbKeys(on=config.use_wandb, project="nuplan", name=config.wandb_name),
    ),
)
