"""The recipe `lead` as one object: LEAD's TransFuser v6, assembled from this folder's parts.

What trains is imported when it is called: `lead config` and `lead cache` do not wait for torch.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import structlog

from lead_trainer.cpu_limit import loader_threads
from lead_trainer.engine.schedule import Schedule, cosine, fixed_warm_restarts, lagging, warm_restarts, warmed_up
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.recipes.config_values import as_words, names_in, values_in
from lead_trainer.recipes.lead.bucket_files import bucket_file_fault, write_bucket_files
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.config_values import (
    CROPS_SIDES,
    PACKAGE,
    from_config_json,
    load_config,
    to_config_json,
    written_out,
)
from lead_trainer.recipes.lead.data_sources import CARLA, SOURCES, DataSource, source_defaults
from lead_trainer.recipes.lead.dataset import FrameCache, collection_of, stage_collections
from lead_trainer.recipes.lead.dataset_mix import MixedSamples, batch_shares, open_samples
from lead_trainer.recipes.lead.evaluation_config import for_leads_evaluation
from lead_trainer.recipes.lead.first_weights import random_backbone
from lead_trainer.recipes.lead.gpu_names import lead_precision, own_gpu_name
from lead_trainer.recipes.lead.ingest.route_tree import TREE_FOLDER
from lead_trainer.recipes.lead.inheritance import INHERITED, SHARED_WITH_NEXT
from lead_trainer.recipes.lead.preparation import SOURCE_KEY, LeadPreparation
from lead_trainer.recipes.lead.run_keys import LOCAL_KEYS, NOT_LEARNED, WEIGHTS_KEYS
from lead_trainer.recipes.lead.stage_rows import shared_values
from lead_trainer.recipes.parameter_names import foreign_weights
from lead_trainer.recipes.recipe import Batch, Evaluation, LossScale, Sample, Scan, StageShape, StepOutput, WatchRule
from lead_trainer.report.wandb import WandbKeys

if TYPE_CHECKING:
    import torch

BACKBONE, PLANNER = "backbone", "planning_decoder"  # what every stage has, what no pretrain stage has
PLANNER_KEY = "use_planning_decoder"

log = structlog.get_logger(__name__)


class LeadRecipe:
    """LEAD's training: perception first (pretrain), then with the planner (posttrain)."""

    name = "lead"
    config_model = LeadConfig
    preparation = LeadPreparation()
    mixes_caches = True
    inherited_keys = INHERITED | {CROPS_SIDES}  # the latter to be refused
    not_learned, local_keys, weights_keys = NOT_LEARNED, LOCAL_KEYS, WEIGHTS_KEYS

    def datasets(self, config: LeadConfig) -> Mapping[str, Mapping[str, Any]]:
        """Returns a cache for each data set in use."""
        if len(config.sources) == 1:
            return {"local": {}}
        return {source.name: {SOURCE_KEY: source.name} for source in config.sources}

    def source_root(self, config: LeadConfig) -> str:
        """Returns the folder of the data set that a cache with this config is built from, of the first one in a mix."""
        return str(getattr(config, source_of(config).root_key))

    def layout_fault(self, config: LeadConfig, root: Path) -> str:
        """Returns what to name instead of a folder of CARLA data that has no folder `data`."""
        if source_of(config) is not CARLA or (root / TREE_FOLDER).is_dir():
            return ""
        near = [folder for folder in (*sorted(root.iterdir()), root.parent) if (folder / TREE_FOLDER).is_dir()]
        asked = f"; did you mean {as_words({CARLA.root_key: str(near[0])})}?" if near else ""
        return f"{root} has no folder {TREE_FOLDER}/{asked or ', which holds the scenarios of a CARLA dataset'}"

    def collections(self, config: LeadConfig) -> Sequence[str]:
        """Returns the stage's bucket collection of that data set."""
        return [collection_of(config, source_of(config))]

    def cache_collections(self, config: LeadConfig) -> Sequence[str]:
        """Returns the collections of both stages, of CARLA alone with and without Town13: they share their samples."""
        return stage_collections(config, source_of(config))

    def cache_values(self, config: LeadConfig, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the values of the cache that serves every horizon of the planner over this tree."""
        return shared_values(config, values, collection_of(config, source_of(config)))

    def bucket_files_fault(self, config: LeadConfig, collections: Sequence[str]) -> str:
        """Returns why LEAD reads no bucket file of these collections with this config, empty where it does."""
        if source_of(config) is not CARLA:
            return f"{SOURCE_KEY}: found {source_of(config).name}; LEAD has bucket files of CARLA data alone"
        return next(filter(None, (bucket_file_fault(name, config) for name in collections)), "")

    def write_buckets(self, config: LeadConfig, scan: Scan) -> Iterable[Path]:
        """Writes LEAD's bucket files of a scan of CARLA data into `carla_root`; yields where they are."""
        return write_bucket_files(scan, config, Path(config.carla_root))

    def written_out(self, said: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns what one source said with every switch in the place of `compat: lead` and `compat: fixed`."""
        return written_out(said)

    def presets(self) -> Sequence[str]:
        """Returns the names of the presets."""
        return names_in(PACKAGE)

    def config(self, values: Mapping[str, Any], preset: str = "") -> LeadConfig:
        """Returns the validated config: defaults < preset < values."""
        return load_config(values, preset)

    def config_json(self, config: LeadConfig) -> Mapping[str, Any]:
        """Returns what `config.json` holds, with the derived keys that LEAD's evaluation reads."""
        return to_config_json(config)

    def from_config_json(self, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the keys that a `config.json`, LEAD's or ours, sets."""
        return from_config_json(document)

    def for_evaluation(self, document: Mapping[str, Any]) -> tuple[Mapping[str, Any], Sequence[str]]:
        """Returns the `config.json` that LEAD's evaluation reads, and what a person should know before it runs."""
        return for_leads_evaluation(document)

    def warnings(self, config: LeadConfig) -> Sequence[str]:
        """Returns what is said before a local run begins."""
        said = random_backbone(config)
        return [said] if said else []

    def next_command(self, config: LeadConfig, weights: Path, logdir: Path, preset: str = "") -> str:
        """Returns how the posttrain stage begins from these weights, or how LEAD's evaluation gets them."""
        if not config.is_pretraining:
            return f"evaluate with LEAD: lead export {shlex.quote(str(logdir))} FOLDER"
        usual = {"recipe": LeadRecipe.name, "preset": ""}
        run = {key: value for key, value in {"recipe": self.name, "preset": preset}.items() if value != usual[key]}
        words = as_words({**run, **_shared_with_next(config, preset), "load_file": str(weights), PLANNER_KEY: True})
        return f"posttrain: lead train {words} logdir=…"

    def watch_rules(self, config: LeadConfig) -> Sequence[WatchRule]:
        """Returns a word on a first stage without weights: a config does not tell from which stage a pod begins."""
        said = random_backbone(config) if config.is_pretraining else None
        return [WatchRule("random-backbone", lambda history: said if history else None)]

    def wandb_keys(self, config: LeadConfig) -> WandbKeys:
        """Returns what LEAD's keys say about W&B."""
        return WandbKeys(
            on=config.log_wandb,
            project=config.wandb_project,
            id=config.wandb_id or "",
            resume=config.wandb_resume,
            name=config.description if config.description != LeadConfig.model_fields["description"].default else "",
            notes=config.id if config.id != LeadConfig.model_fields["id"].default else "",
        )

    def shape(self, config: LeadConfig) -> StageShape:
        """Returns what the loop needs to know of `config`; raises BadConfig for a batch that cannot be mixed."""
        batch_shares(config, len(config.sources), config.batch_size, 0, config.canonical_nodes)
        return StageShape(
            seed=config.seed,
            batch_size=config.batch_size,
            collection=collection_of(config),
            precision=precision_of(config),
            deterministic=config.deterministic,
            sync_batchnorm=config.sync_batchnorm,
            compile=config.compile,
            grad_clip_norm=config.grad_clip_norm,
            scalars_every_steps=config.log_scalars_frequency,
            pictures_every_steps=config.log_images_frequency if config.visualize_training else 0,
            loader_threads=config.num_threads or loader_threads(),
            batches_ahead=config.prefetch_factor,
            canonical_nodes=config.canonical_nodes,
            session_cache=config.use_training_session_cache,
            session_cache_backend=config.session_cache_backend,
            loader=config.loader,
            loss_scale=LossScale(
                initial=config.grad_scaler_init_scale,
                growth=config.grad_scaler_growth_factor,
                backoff=config.grad_scaler_backoff_factor,
                growth_interval=config.grad_scaler_growth_interval,
                largest=config.grad_scaler_max_grad_scale,
            ),
            accumulate_steps=config.gradient_accumulation_steps,
            grad_clip_quantile=config.grad_quantile if config.use_grad_clipper else 0.0,
            grad_clip_history=config.grad_history_length,
            ema_decay=config.ema_decay,
            freeze_batchnorm=config.freeze_batchnorm,
            validate_every_epochs=config.validate_every_epochs,
            best_metric=config.best_metric,
            best_is_greatest=config.best_is_greatest,
            patience_epochs=config.patience_epochs,
            max_validation_samples=config.validation_max_samples,
        )

    def samples(self, config: LeadConfig, cache: Mapping[str, FrameCache]) -> MixedSamples:
        """Returns the stage's samples from its caches by name; raises BadConfig where there is none."""
        if not cache:
            raise BadConfig("recipe lead trains on a dataset cache; name one in datasets, or set carla_root")
        if not config.validates:
            return open_samples(config, cache)
        from lead_trainer.recipes.lead.validation import CachePart

        return open_samples(config, {name: CachePart(one, config, held_out=False) for name, one in cache.items()})

    def validation_samples(self, config: LeadConfig, cache: Mapping[str, FrameCache]) -> MixedSamples | None:
        """Returns the held-out routes as they were recorded, None where the config holds none out."""
        if not config.validates:
            return None
        from lead_trainer.recipes.lead.validation import AS_RECORDED, CachePart

        held_out = {name: CachePart(one, config, held_out=True) for name, one in cache.items()}
        return open_samples(config.model_copy(update=AS_RECORDED), held_out, mixed=False)

    def evaluate(self, model: "torch.nn.Module", batch: Batch, config: LeadConfig) -> Evaluation:
        """Returns what one validation batch adds to losses, LEAD's metrics and IoUs."""
        from lead_trainer.recipes.lead.validation import evaluate

        return evaluate(config, model(batch), batch)

    def validation_metrics(self, config: LeadConfig, means: Mapping[str, float]) -> Mapping[str, float]:
        """Returns the means, with the loss of all data sets in a mix, and the mIoU of each head with classes."""
        from lead_trainer.recipes.lead.validation import with_loss_of_all_sets, with_means_over_classes

        return with_means_over_classes(with_loss_of_all_sets(config, means))

    def collate(self, samples: Sequence[Sample]) -> Batch:
        """Stacks samples."""
        from lead_trainer.recipes.lead.dataset_collate import collate

        return collate(samples)

    def on_device(self, batch: Batch, config: LeadConfig) -> Batch:
        """Makes planes, metres and numbers of the stored bytes."""
        from lead_trainer.recipes.lead.device_work import finished

        return finished(batch, config)

    def model(self, config: LeadConfig) -> "torch.nn.Module":
        """Returns TFv6 with fresh weights, its image backbone with those of `backbone_weights` where that is set."""
        from lead_trainer.recipes.lead.model import build_model

        return build_model(config)

    def load_initial_weights(self, model: "torch.nn.Module", config: LeadConfig, state: Mapping[str, Any]) -> None:
        """Loads an earlier stage's weights, of which heads as a whole may be left over or missing; raises BadConfig.

        A head that they lack begins fresh, which is said unless it is the planner.
        """
        if fault := foreign_weights(model.state_dict(), state):
            raise BadConfig(f"load_file: {fault}")
        left = [name for name in state if getattr(model, part_of(name), model) is None]
        try:
            missing, unexpected = model.load_state_dict(
                {name: value for name, value in state.items() if name not in left}, strict=False
            )
        except RuntimeError as error:
            raise BadConfig(
                f"load_file: its weights are of another shape: {str(error).splitlines()[1].strip()}"
            ) from error
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

    def optimizer(self, model: "torch.nn.Module", config: LeadConfig) -> "torch.optim.Optimizer":
        """Returns LEAD's AdamW: amsgrad, everything decayed."""
        from lead_trainer.engine.optim import AdamWSettings, make_adamw

        return make_adamw(model, AdamWSettings(lr=config.lr, weight_decay=config.weight_decay, amsgrad=True))

    def lr_factor(self, config: LeadConfig, step: int, steps_per_epoch: int, epochs: int) -> float:
        """Returns the factor of LEAD's schedule at a step."""
        return lead_schedule(config, steps_per_epoch, epochs)(step)

    def step(self, model: "torch.nn.Module", batch: Batch, config: LeadConfig) -> StepOutput:
        """Runs forward, losses and metrics of one batch."""
        from lead_trainer.recipes.lead.losses import compute_losses
        from lead_trainer.recipes.lead.metrics import compute_metrics

        predictions = model(batch)
        report = compute_losses(config, predictions, batch)
        metrics = compute_metrics(config, predictions, batch)
        return StepOutput(
            loss=report.total,
            parts={name: value.detach() for name, value in report.raw.items()},
            metrics={name.removeprefix("metric/"): value for name, value in metrics.items()},
            outputs=predictions,
            scaled={name: value.detach() for name, value in report.scaled.items()},
        )

    def picture(self, config: LeadConfig, batch: Batch, outputs: Any) -> npt.NDArray[np.uint8] | None:
        """Returns cameras, labels and predictions of the first sample side by side."""
        from lead_trainer.recipes.lead.visualize import draw_training_picture

        return draw_training_picture(config, batch, outputs)

    def checkpoint_names(self, epoch: int) -> Mapping[str, str]:
        """Returns LEAD's file names."""
        names = {part: f"{part}_{epoch:04d}.pth" for part in ("model", "optimizer", "scheduler", "scaler")}
        return {**names, "skipped": f"gradient_steps_skipped_{epoch:04d}.txt"}


def _shared_with_next(config: LeadConfig, preset: str) -> dict[str, Any]:
    """Returns what the posttrain stage shares with this one and has from neither its preset nor its data sets."""
    of_preset = values_in(PACKAGE, preset) if preset else {}
    usual = {**{key: field.default for key, field in type(config).model_fields.items()}, **of_preset}
    of_data = {source.use_key: getattr(config, source.use_key) for source in SOURCES}
    usual = {**usual, **source_defaults({**of_preset, **of_data}), **of_preset}
    values = {key: getattr(config, key) for key in type(config).model_fields if key in SHARED_WITH_NEXT}
    return {key: value for key, value in values.items() if value != usual[key]}


def part_of(name: str) -> str:
    """Returns the part of the model, the backbone or a head, that a parameter is of."""
    return name.split(".")[0]


def source_of(config: LeadConfig) -> DataSource:
    """Returns the data set of a cache with this config, the first in use where it names none."""
    return next((source for source in SOURCES if source.name == config.source_dataset), config.sources[0])


def precision_of(config: LeadConfig) -> str:
    """Returns the number format, by LEAD's table of GPU names where `precision` is `lead`."""
    return lead_precision(config.gpu_name or own_gpu_name()) if config.precision == "lead" else config.precision


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


RECIPE = LeadRecipe()
