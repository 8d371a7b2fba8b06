"""What people see of a run of recipe `lead`: LEAD's tags and scalars, its picture, advice, and what comes next."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lead_trainer.contract.config_values import as_arguments, values_in
from lead_trainer.contract.reports import Picture, Reports, RunFigures, Tags, WandbKeys, WatchRule
from lead_trainer.contract.samples import Batch
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.config_values import PACKAGE
from lead_trainer.recipes.lead.data_sources import SOURCES, source_defaults
from lead_trainer.recipes.lead.first_weights import random_backbone
from lead_trainer.recipes.lead.inheritance import SHARED_WITH_NEXT
from lead_trainer.recipes.lead.prepare_metas import UNMEASURED

RECIPE_NAME, PLANNER_KEY = "lead", "use_planning_decoder"


def figures(config: LeadConfig, found: RunFigures, batch: Batch) -> Mapping[str, float]:
    """Returns LEAD's scalars of a step beside its losses, `debug/…`: sizes, position, memory, loading time.

    LEAD's times of metas and sensors alone have no counterpart: metas are columns in memory here, and all of a sample's
    loading time is that of its sensors.
    """
    values: dict[str, float] = {
        **{f"lr_{index}": rate for index, rate in enumerate(found.rates)},
        "gradient_norm": found.gradient_norm,
        "loss": found.loss,
        "epoch": found.epoch,
        "gradient_steps_skipped": found.skipped_steps,
        "grad_scale": found.loss_scale,
        "num_gpu": found.processes,  # one process a GPU, or a CPU's share
        "model_size": found.parameters,
        "dataset_size": found.samples,
        "dataloader_size": found.batches,
        "batch_size_per_gpu": found.rank_batch,
        "allocated_cpus": found.loader_threads,
        "num_gradient_steps": found.steps,  # of the whole stage
        "finished_percentage": found.step / found.steps,  # LEAD's name, but from 0 to 1
        "steps_left": found.steps - found.step,
        "max_gpu_mem": found.gpu_memory_gib,
    }
    if found.load_s is not None:
        values["average_loading_time"] = found.load_s
    if "source_dataset" in batch:
        values["source_dataset"] = float(batch["source_dataset"].double().mean())
    return {f"debug/{name}": value for name, value in values.items()}


def picture(config: LeadConfig, batch: Batch, outputs: Any) -> Picture | None:
    """Returns cameras, labels and predictions of the first sample side by side."""
    from lead_trainer.recipes.lead.visualize import draw_training_picture

    return draw_training_picture(config, batch, outputs)


def warnings(config: LeadConfig) -> Sequence[str]:
    """Returns the warnings before a local run begins."""
    warning = random_backbone(config)
    return [warning] if warning else []


def watch_rules(config: LeadConfig) -> Sequence[WatchRule]:
    """Returns a warning for a first stage without weights: a config does not contain the stage a pod starts from."""
    warning = random_backbone(config) if config.is_pretraining else None
    return [WatchRule("random-backbone", lambda history: warning if history else None)]


def next_command(config: LeadConfig, weights: Path, logdir: Path, chosen: Mapping[str, str]) -> str:
    """Returns how the posttrain stage begins from these weights, or how LEAD's evaluation gets them."""
    if not config.is_pretraining:
        return f"evaluate with LEAD: lead export {shlex.quote(str(logdir))} FOLDER"
    run = {key: value for key, value in chosen.items() if value != {"recipe": RECIPE_NAME, "preset": ""}[key]}
    arguments = as_arguments(
        {**run, **_shared_with_next(config, chosen["preset"]), "load_file": str(weights), PLANNER_KEY: True}
    )
    return f"posttrain: lead train {arguments} logdir=…"


def _shared_with_next(config: LeadConfig, preset: str) -> dict[str, Any]:
    """Returns what the posttrain stage shares with this one and has from neither its preset nor its data sets."""
    of_preset = values_in(PACKAGE, preset) if preset else {}
    usual = {**{key: field.default for key, field in type(config).model_fields.items()}, **of_preset}
    of_data = {source.use_key: getattr(config, source.use_key) for source in SOURCES}
    usual = {**usual, **source_defaults({**of_preset, **of_data}), **of_preset}
    values = {key: getattr(config, key) for key in type(config).model_fields if key in SHARED_WITH_NEXT}
    return {key: value for key, value in values.items() if value != usual[key]}


def wandb_keys(config: LeadConfig) -> WandbKeys:
    """Returns the W&B settings of LEAD's keys."""
    usual = {key: LeadConfig.model_fields[key].default for key in ("description", "id")}
    return WandbKeys(
        on=config.log_wandb,
        project=config.wandb_project,
        id=config.wandb_id or "",
        resume=config.wandb_resume,
        name=config.description if config.description != usual["description"] else "",
        notes=config.id if config.id != usual["id"] else "",
    )


REPORTS = Reports[LeadConfig](
    tags=Tags(parts="unscaled_loss/", scaled="scaled_loss/", metrics="metric/", picture="prediction"),
    figures=figures,
    picture=picture,
    watch_rules=watch_rules,
    warnings=warnings,
    next_command=next_command,
    wandb=wandb_keys,
    unmeasured=UNMEASURED,
)
