"""The recipe `lead` as one value: LEAD's TransFuser v6, assembled from this folder's parts.

Perception is trained first (pretrain), then with the planner (posttrain). What trains is imported when it is called:
`lead config` and `lead cache` do not wait for torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lead_trainer.contract.files import Files
from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.samples import Batch, Caches, Sample
from lead_trainer.contract.step import Facts, Position, StepContext, StepOutput
from lead_trainer.contract.validation import Evaluation, Validation
from lead_trainer.engine.step.schedule import Schedule, cosine, fixed_warm_restarts, lagging, warm_restarts, warmed_up
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.config_values import KEYS
from lead_trainer.recipes.lead.dataset_mix import MixedSamples, open_samples
from lead_trainer.recipes.lead.initial_weights import load_initial_weights
from lead_trainer.recipes.lead.preparation import LeadPreparation
from lead_trainer.recipes.lead.reports import RECIPE_NAME, REPORTS
from lead_trainer.recipes.lead.trees import TREES

if TYPE_CHECKING:
    import torch


def samples(config: LeadConfig, caches: Caches) -> MixedSamples:
    """Returns the stage's samples from its caches by name; raises BadConfig where there is none."""
    if not caches:
        raise BadConfig("recipe lead trains on a dataset cache; name one in datasets, or set carla_root")
    if not config.validates:
        return open_samples(config, caches)
    from lead_trainer.recipes.lead.validation import CachePart

    return open_samples(config, {name: CachePart(one, config, held_out=False) for name, one in caches.items()})


def validation_samples(config: LeadConfig, caches: Caches) -> MixedSamples | None:
    """Returns the held-out routes as they were recorded, None where the config holds none out."""
    if not config.validates:
        return None
    from lead_trainer.recipes.lead.validation import AS_RECORDED, CachePart

    held_out = {name: CachePart(one, config, held_out=True) for name, one in caches.items()}
    return open_samples(config.model_copy(update=AS_RECORDED), held_out, mixed=False)


def evaluate(model: "torch.nn.Module", batch: Batch, context: StepContext[LeadConfig]) -> Evaluation:
    """Returns what one validation batch adds to losses, LEAD's metrics and IoUs; a picture of the first one."""
    from lead_trainer.recipes.lead.validation import evaluate
    from lead_trainer.recipes.lead.visualize import draw_training_picture

    predictions = model(batch)
    found = evaluate(context.config, predictions, batch)
    picture = None if context.micro_batch else draw_training_picture(context.config, batch, predictions)
    return found if picture is None else replace(found, pictures={"val/picture": picture})


def summary(config: LeadConfig, means: Mapping[str, float]) -> Mapping[str, float]:
    """Returns the means, with the loss of all data sets in a mix, and the mIoU of each head with classes."""
    from lead_trainer.recipes.lead.validation import with_loss_of_all_sets, with_means_over_classes

    return with_means_over_classes(config, with_loss_of_all_sets(config, means))


def collate(samples: Sequence[Sample]) -> Batch:
    """Stacks samples, with zeros for what some of them lack."""
    from lead_trainer.recipes.lead.dataset_collate import collate

    return collate(samples)


def on_device(batch: Batch, config: LeadConfig) -> Batch:
    """Makes planes, metres and numbers of the stored bytes."""
    from lead_trainer.recipes.lead.device_work import finished

    return finished(batch, config)


def model(config: LeadConfig, facts: Facts) -> "torch.nn.Module":
    """Returns TFv6 with fresh weights, its image backbone with those of `backbone_weights` where that is set."""
    from lead_trainer.recipes.lead.model import build_model

    return build_model(config)


def optimizer(model: "torch.nn.Module", config: LeadConfig) -> "torch.optim.Optimizer":
    """Returns LEAD's AdamW: amsgrad, everything decayed."""
    from lead_trainer.engine.step.optim import AdamWSettings, make_adamw

    return make_adamw(model, AdamWSettings(lr=config.lr, weight_decay=config.weight_decay, amsgrad=True))


def lr_factor(config: LeadConfig, at: Position) -> float:
    """Returns the factor of LEAD's schedule at a step; LEAD's epochs have one length."""
    return lead_schedule(config, at.epoch_steps[0] if at.epoch_steps else 0, at.epochs)(at.step)


def step(model: "torch.nn.Module", batch: Batch, context: StepContext[LeadConfig]) -> StepOutput:
    """Runs forward, losses and metrics of one batch."""
    from lead_trainer.recipes.lead.losses import compute_losses
    from lead_trainer.recipes.lead.metrics import compute_metrics

    predictions = model(batch)
    report = compute_losses(context.config, predictions, batch)
    metrics = compute_metrics(context.config, predictions, batch)
    return StepOutput(
        loss=report.total,
        parts={name: value.detach() for name, value in report.raw.items()},
        metrics={name.removeprefix("metric/"): value for name, value in metrics.items()},
        outputs=predictions,
        scaled={name: value.detach() for name, value in report.scaled.items()},
    )


def lead_schedule(config: LeadConfig, steps_per_epoch: int, epochs: int) -> Schedule:
    """Returns the learning-rate schedule of a stage."""
    total = steps_per_epoch * epochs
    if total < 1:
        raise BadData(f"a stage of {epochs} epochs of {steps_per_epoch} steps has nothing to train")
    if not config.use_cosine_annealing_with_restarts:
        plain = cosine(total)
    elif config.compat.fixed_restart_lengths:
        plain = fixed_warm_restarts(steps_per_epoch)
    else:
        plain = warm_restarts(total, steps_per_epoch)
    schedule = warmed_up(plain, config.lr_warmup_steps)
    return lagging(schedule) if config.compat.lagging_lr else schedule


RECIPE = Recipe[LeadConfig](
    name=RECIPE_NAME,
    config_model=LeadConfig,
    preparation=LeadPreparation(),
    samples=samples,
    collate=collate,
    on_device=on_device,
    model=model,
    load_initial_weights=load_initial_weights,
    optimizer=optimizer,
    lr_factor=lr_factor,
    step=step,
    validation=Validation(samples=validation_samples, evaluate=evaluate, summary=summary),
    keys=KEYS,
    files=Files(kept_epochs=lambda config: config.epoch_checkpoints_keep),
    trees=TREES,
    reports=REPORTS,
)
