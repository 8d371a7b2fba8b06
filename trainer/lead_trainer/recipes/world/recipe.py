"""The recipe `world` as one value: a latent world model that predicts pictures from pictures and actions.

What trains is imported when it is called: preparing data does not wait for torch.
"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lead_trainer.contract.benchmark import Benchmark, Evaluated
from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.reports import Picture, Reports, RunFigures, Tags, WandbKeys, WatchRule
from lead_trainer.contract.samples import Batch, Caches, Samples
from lead_trainer.contract.step import Facts, StepContext, StepOutput
from lead_trainer.contract.trees import Trees
from lead_trainer.contract.validation import Evaluation, Validation
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.world.config import WorldConfig
from lead_trainer.recipes.world.config_values import KEYS
from lead_trainer.recipes.world.preparation import WorldPreparation
from lead_trainer.recipes.world.schedule import lr_factor
from lead_trainer.recipes.world.trees import layout_fault, source_root

if TYPE_CHECKING:
    import torch
    import torchmetrics


def samples(config: WorldConfig, caches: Caches) -> Samples:
    """Returns the windows of training."""
    from lead_trainer.recipes.world.dataset import training_samples

    return training_samples(config, caches)


def held_out_samples(config: WorldConfig, caches: Caches) -> Samples:
    """Returns the windows of validation."""
    from lead_trainer.recipes.world.dataset import validation_samples

    return validation_samples(config, caches)


def facts(config: WorldConfig, caches: Caches) -> Facts:
    """Returns the mean picture of the training windows, without augmentation."""
    from lead_trainer.recipes.world.dataset import WindowSamples
    from lead_trainer.recipes.world.mean_picture import mean_picture_facts

    (cache,) = caches.values()
    return mean_picture_facts(WindowSamples(config, cache, "train", training=False))


def model(config: WorldConfig, facts: Facts) -> "torch.nn.Module":
    """Returns a world model with fresh weights."""
    from lead_trainer.recipes.world.model import build_model

    return build_model(config)


def save_memory(model: "torch.nn.Module") -> None:
    """Makes the stages of encoder and decoder run twice in training."""
    from lead_trainer.recipes.world.model import WorldModel

    assert isinstance(model, WorldModel)
    model.enable_gradient_checkpointing()


def optimizer(model: "torch.nn.Module", config: WorldConfig) -> "torch.optim.Optimizer":
    """Returns AdamW with a group for each part; raises BadConfig for a parameter that is of none."""
    from lead_trainer.engine.step.optim import AdamWSettings, make_adamw

    rates, keys = config.optimizer.rates(), config.optimizer
    others = sorted({name.split(".")[0] for name, _ in model.named_parameters()} - rates.keys())
    if others:
        raise BadConfig(f"optimizer: found parameters of {others[0]}, expected those of {', '.join(rates)} alone")
    made = make_adamw(
        model, AdamWSettings(lr=keys.lr, weight_decay=keys.weight_decay, betas=keys.betas, group_lrs=rates)
    )
    for part, group in zip(rates, made.param_groups, strict=True):
        group["name"] = part
    return made


def on_device(batch: Batch, config: WorldConfig) -> Batch:
    """Returns the batch with its pictures (B, T, 3, H, W) in [-1, 1]."""
    from lead_trainer.recipes.world.pixels import signed

    return {**batch, "images": signed(batch["images"])}


def step(model: "torch.nn.Module", batch: Batch, context: StepContext[WorldConfig]) -> StepOutput:
    """Runs forward pass and losses; in the first epochs the model reconstructs alone."""
    from lead_trainer.recipes.world.losses import compute_losses
    from lead_trainer.recipes.world.metrics import training_metrics

    config, images = context.config, batch["images"]
    outputs = model(images, batch["actions"], predict=context.epoch >= config.first_predicting_epoch)
    report = compute_losses(config, outputs, images, context.helpers)
    metrics = training_metrics(outputs, images, config.logging.num_samples)
    parts = {tag: value.detach() for tag, value in report.parts.items()}
    return StepOutput(report.total, parts, metrics, outputs)


def helpers(config: WorldConfig) -> "torch.nn.Module":
    """Returns the frozen network of the perceptual loss."""
    from lead_trainer.recipes.world.loss_terms.perceptual import perceptual_distance

    return perceptual_distance(config)


def evaluate(model: "torch.nn.Module", batch: Batch, context: StepContext[WorldConfig]) -> Evaluation:
    """Returns losses, PSNR and SSIM of one batch, beside the baselines'."""
    from lead_trainer.recipes.world.validation import evaluate

    return evaluate(model, batch, context)


def metrics(config: WorldConfig, facts: Facts) -> "Mapping[str, torchmetrics.Metric]":
    """Returns the Fréchet distance of latents."""
    from lead_trainer.recipes.world.validation import metrics

    return metrics(config, facts)


def measured(run: Evaluated[WorldConfig]) -> Any:
    """Measures weights on a split beside the baselines, and writes report.json, report.md and pictures."""
    from lead_trainer.recipes.world.measure import measured

    return measured(run)


def figures(config: WorldConfig, found: RunFigures, batch: Batch) -> Mapping[str, float]:
    """Returns the guide's scalars of a step: `train/loss`, `lr`, and the rate of each part."""
    rates = dict(zip(config.optimizer.rates(), found.rates, strict=True))
    return {
        "train/loss": found.loss,
        "lr": max(found.rates),
        **{f"lr/{part}": rate for part, rate in rates.items()},
        "train/gradient_norm": found.gradient_norm,
        "train/steps_skipped": found.skipped_steps,
    }


def pictures(config: WorldConfig, batch: Batch, outputs: Any) -> Mapping[str, Picture]:
    """Returns the guide's pictures of a training step."""
    from lead_trainer.recipes.world.pictures import training_pictures

    return training_pictures(outputs, batch["images"], config.logging.num_samples)


def watch_rules(config: WorldConfig) -> Sequence[WatchRule]:
    """Returns the guide's advice."""
    from lead_trainer.recipes.world.advice import watch_rules

    return watch_rules(config)


def warnings(config: WorldConfig) -> Sequence[str]:
    """Returns what is reported before a local run begins."""
    from lead_trainer.recipes.world.advice import warnings

    return warnings(config)


def stage(config: WorldConfig, epoch: int) -> str:
    """Returns the guide's name of the stage that an epoch belongs to."""
    from lead_trainer.recipes.world.advice import stage_of

    return stage_of(config, epoch)


def next_command(config: WorldConfig, weights: Path, logdir: Path, chosen: Mapping[str, str]) -> str:
    """Returns how these weights are measured."""
    return f"report: lead evaluate {shlex.quote(str(weights))}"


RECIPE = Recipe[WorldConfig](
    name="world",
    config_model=WorldConfig,
    preparation=WorldPreparation(),
    samples=samples,
    facts=facts,
    facts_without_data=lambda config: {},
    model=model,
    save_memory=save_memory,
    optimizer=optimizer,
    lr_factor=lr_factor,
    on_device=on_device,
    step=step,
    helpers=helpers,
    validation=Validation(samples=held_out_samples, evaluate=evaluate, metrics=metrics),
    benchmark=Benchmark(splits=("val", "train"), measure=measured),
    keys=KEYS,
    trees=Trees(root=source_root, layout_fault=layout_fault),
    reports=Reports(
        # Metrics have their whole tags: the guide's are of `train/`, the spread of latents is not.
        tags=Tags(parts="train/", metrics=""),
        figures=figures,
        pictures=pictures,
        watch_rules=watch_rules,
        warnings=warnings,
        stage=stage,
        next_command=next_command,
        stated_speed={
            "half precision": "-50 % memory, +40 % speed",
            "gradient checkpointing": "-50 % memory, -20 % speed",
            "2 GPUs": "1.85 times",
            "4 GPUs": "3.46 times",
            "8 GPUs": "6.46 times",
        },
        wandb=lambda config: WandbKeys(on=config.use_wandb, project="world-model", name=config.wandb_name),
    ),
)
