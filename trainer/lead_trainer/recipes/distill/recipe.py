"""The recipe `distill` as one value: a student of Alpamayo-R1, and its two benchmark modes.

What trains is imported when it is called: `lead config` and `lead cache` do not wait for torch.
"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lead_trainer.contract.benchmark import Benchmark, Evaluated
from lead_trainer.contract.files import CheckpointAt, Files
from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.reports import Reports, WatchRule
from lead_trainer.contract.samples import Batch, Caches, Samples
from lead_trainer.contract.step import Facts, Position, StepContext, StepOutput
from lead_trainer.contract.trees import Trees
from lead_trainer.contract.validation import Evaluation, Validation
from lead_trainer.engine.step.schedule import constant, cosine, warmed_up
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.distill.action_stats import STATS
from lead_trainer.recipes.distill.advice import GUIDE_RULES, fresh_frozen_norms
from lead_trainer.recipes.distill.config import DistillConfig
from lead_trainer.recipes.distill.config_values import KEYS
from lead_trainer.recipes.distill.modes import mode_of, only_cache
from lead_trainer.recipes.distill.preparation import DistillPreparation
from lead_trainer.recipes.parameter_names import foreign_weights, weights_fault

if TYPE_CHECKING:
    import torch

    from lead_trainer.recipes.distill.benchmarks.measure import Results


def source_root(config: DistillConfig) -> str | None:
    """Returns the raw tree of a run on this machine, None where the config needs none."""
    if config.offline and config.benchmark == "none":
        return None
    return mode_of(config.benchmark).source_root(config)


def collections(config: DistillConfig) -> Sequence[str]:
    """Returns the collections a run reads: training, then validation."""
    return mode_of(config.benchmark).collections(config)


def samples(config: DistillConfig, caches: Caches) -> Samples:
    """Returns the training samples; raises BadConfig where there is no cache and the config needs one."""
    return mode_of(config.benchmark).samples(config, only_cache(caches), "train")


def validation_samples(config: DistillConfig, caches: Caches) -> Samples:
    """Returns the validation samples."""
    return mode_of(config.benchmark).samples(config, only_cache(caches), "val")


def facts(config: DistillConfig, caches: Caches) -> Facts:
    """Returns what the mode knows of the training split: mean and spread of its actions, where it has any."""
    found: Facts = mode_of(config.benchmark).facts(only_cache(caches))
    return found


def model(config: DistillConfig, facts: Facts) -> "torch.nn.Module":
    """Returns a student with fresh weights."""
    from lead_trainer.recipes.distill.model import build_model

    return build_model(config, facts)


def load_initial_weights(
    model: "torch.nn.Module", config: DistillConfig, facts: Facts, state: Mapping[str, "torch.Tensor"]
) -> None:
    """Loads another run's weights; raises BadConfig unless they are of the same student.

    A run that trains keeps the facts of its own data: the units that it learns in.
    """
    own = model.state_dict()
    if fault := foreign_weights(own, state):
        raise BadConfig(f"load_file: {fault}")
    if fault := weights_fault(own, state):
        raise BadConfig(f"load_file: its weights are of another student: {fault}; give the keys it had")
    kept = {STATS: own[STATS]} if facts and STATS in own else {}
    try:
        model.load_state_dict({**state, **kept})
    except RuntimeError as error:  # shapes
        what = str(error).splitlines()[1].strip()
        raise BadConfig(f"load_file: its weights are of another student: {what}; give the keys it had") from error


def save_memory(model: "torch.nn.Module") -> None:
    """Makes every layer run twice in training and keep its input alone."""
    from lead_trainer.recipes.distill.model import Student

    assert isinstance(model, Student)
    model.checkpointed = True


def optimizer(model: "torch.nn.Module", config: DistillConfig) -> "torch.optim.Optimizer":
    """Returns AdamW, norms and biases not decayed."""
    from lead_trainer.engine.step.optim import AdamWSettings, make_adamw

    settings = AdamWSettings(lr=config.lr, weight_decay=config.weight_decay, decay_norms_and_biases=False)
    return make_adamw(model, settings)


def lr_factor(config: DistillConfig, at: Position) -> float:
    """Returns the factor of a step: a linear warm-up of whole epochs, then a cosine over the rest, or 1."""
    warmup = sum(at.epoch_steps[: config.warmup_epochs])
    warmup += max(0, config.warmup_epochs - at.epochs) * at.epoch_steps[-1]
    rest = max(at.steps - warmup, 1)
    if at.step < warmup or config.lr_schedule == "constant":
        return warmed_up(constant, warmup)(at.step)
    return cosine(rest)(at.step - warmup)


def step(model: "torch.nn.Module", batch: Batch, context: StepContext[DistillConfig]) -> StepOutput:
    """Runs forward and losses of one batch."""
    from lead_trainer.recipes.distill.losses import compute_losses, reasoning_scale

    config = context.config
    scale = reasoning_scale(config, context.epoch) if config.model == "reasoning" else 1.0
    report = compute_losses(config, model(batch), batch, context.facts, scale)
    return StepOutput(loss=report.total, parts={tag: value.detach() for tag, value in report.parts.items()})


def evaluate(model: "torch.nn.Module", batch: Batch, context: StepContext[DistillConfig]) -> Evaluation:
    """Runs losses, with the reasoning's whole weight, and metrics of one batch."""
    from lead_trainer.recipes.distill.losses import compute_losses
    from lead_trainer.recipes.distill.metrics import action_ends, action_totals, trajectory_totals
    from lead_trainer.recipes.distill.pictures import ways_from_above

    config, predictions = context.config, model(batch)
    report, count = compute_losses(config, predictions, batch, context.facts), len(batch["speed"])
    losses = {"loss": report.total, **{f"{tag}_loss": value for tag, value in report.parts.items()}}
    return Evaluation(
        {
            **{tag: (value * count, count) for tag, value in losses.items()},
            **trajectory_totals(predictions, batch),
            **action_totals(config, predictions),
            **mode_of(config.benchmark).metrics(config, predictions, batch),
        },
        action_ends(config, predictions),
        pictures={"val/ways": ways_from_above(predictions, batch)} if context.micro_batch == 0 else {},
    )


def summary(config: DistillConfig, means: Mapping[str, float]) -> Mapping[str, float]:
    """Returns the means, and spreads in place of mean squares."""
    from lead_trainer.recipes.distill.metrics import with_spreads

    return with_spreads(means)


def measured(run: Evaluated[DistillConfig]) -> "Results":
    """Measures weights on a split beside the baselines, and writes a challenge's file."""
    from lead_trainer.recipes.distill.benchmarks.measure import measured

    return measured(run)


def warnings(config: DistillConfig) -> Sequence[str]:
    """Returns the warnings before a local run begins."""
    warning = fresh_frozen_norms(config)
    return [warning] if warning else []


def next_command(config: DistillConfig, weights: Path, logdir: Path, chosen: Mapping[str, str]) -> str:
    """Returns how these weights are measured."""
    command = f"evaluate: lead evaluate {shlex.quote(str(weights))}"
    if not config.overfit_samples:
        return command
    return f"{command} (on the whole split; only {config.overfit_samples} samples were trained: overfit_tiny)"


def watch_rules(config: DistillConfig) -> Sequence[WatchRule]:
    """Returns the guide's advice, and in pods what a local run is warned of before it begins."""
    warning = fresh_frozen_norms(config)
    return (*GUIDE_RULES, WatchRule("fresh-frozen-norms", lambda history: warning if history else None))


def file_names(config: DistillConfig, at: CheckpointAt) -> Mapping[str, str]:
    """Returns `{model}_seed{seed}_epoch{N}.pt` for the weights, and beside it what resuming needs."""
    stem = f"{config.model}_seed{config.seed}_epoch{at.epoch + 1}"
    parts = {part: f"{stem}_{part}.pt" for part in ("optimizer", "scheduler", "scaler", "ema", "clipper")}
    return {"model": f"{stem}.pt", **parts, "skipped": f"{stem}_skipped.txt"}


def shown_names(config: DistillConfig, epoch: int, newest: bool, best: bool) -> Sequence[str]:
    """Returns `{model}_seed{seed}_latest.pt`, `…_best.pt`, and every `save_every` epochs `…_epochN.pt`.

    With `save_final_only` nothing but the best is shown.
    """
    every = (epoch + 1) % config.save_every == 0
    names = [("best", best), ("latest", newest), (f"epoch{epoch + 1}", every)]
    shown = names[:1] if config.save_final_only else names
    return [f"{config.model}_seed{config.seed}_{name}.pt" for name, holds in shown if holds]


RECIPE = Recipe[DistillConfig](
    name="distill",
    config_model=DistillConfig,
    preparation=DistillPreparation(),
    samples=samples,
    facts=facts,
    facts_without_data=lambda config: {},
    model=model,
    load_initial_weights=load_initial_weights,
    save_memory=save_memory,
    optimizer=optimizer,
    lr_factor=lr_factor,
    step=step,
    validation=Validation(samples=validation_samples, evaluate=evaluate, summary=summary),
    benchmark=Benchmark(splits=("val", "train", "train_val", "test"), measure=measured),
    keys=KEYS,
    # The guide's runs share a folder.
    files=Files(names=file_names, shown=shown_names, run_kind=lambda config: config.model),
    trees=Trees(root=source_root, collections=collections),
    reports=Reports(watch_rules=watch_rules, warnings=warnings, next_command=next_command),
)
