"""The recipe `distill` as one object: a student of Alpamayo-R1, assembled from this folder's parts.

What trains is imported when it is called: `lead config` and `lead cache` do not wait for torch.
"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lead_trainer.cpu_limit import loader_threads
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.engine.schedule import constant, cosine, warmed_up
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.config_values import names_in
from lead_trainer.recipes.distill.advice import GUIDE_RULES, fresh_frozen_norms
from lead_trainer.recipes.distill.config import DistillConfig
from lead_trainer.recipes.distill.config_values import PACKAGE, load_config, respelled
from lead_trainer.recipes.distill.modes import mode_of
from lead_trainer.recipes.distill.preparation import DistillPreparation
from lead_trainer.recipes.distill.run_keys import LOCAL_KEYS, NOT_LEARNED, WEIGHTS_KEYS
from lead_trainer.recipes.parameter_names import foreign_weights, weights_fault
from lead_trainer.recipes.recipe import Batch, Evaluation, Sample, SampleSource, StageShape, StepOutput, WatchRule

if TYPE_CHECKING:
    import torch

# What a stage takes over from the stage of `load_file`: the student's shape and what it sees.
STUDENT_KEYS = frozenset(
    {
        "discrete_actions", "max_agents", "max_polylines", "model_size", "no_unicycle", "num_action_bins",
        "polyline_points", "raster_metres_per_pixel", "raster_pixels", "resolution", "vector_radius_m",
    }
)  # fmt: skip


class DistillRecipe:
    """Trajectory distillation from a vision-language-action teacher, and its two benchmark modes."""

    name = "distill"
    config_model = DistillConfig
    preparation = DistillPreparation()
    inherited_keys = STUDENT_KEYS
    not_learned, local_keys, weights_keys = NOT_LEARNED, LOCAL_KEYS, WEIGHTS_KEYS

    def presets(self) -> Sequence[str]:
        """Returns the names of the presets."""
        return names_in(PACKAGE)

    def config(self, values: Mapping[str, Any], preset: str = "") -> DistillConfig:
        """Returns the validated config: defaults < preset < values."""
        return load_config(values, preset)

    def respelled(self, said: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns what a user said, with the guide's words for the trainer's."""
        return respelled(said)

    def source_root(self, config: DistillConfig) -> str | None:
        """Returns the raw tree of a run on this machine, None where the config needs none."""
        if config.offline and config.benchmark == "none":
            return None
        return mode_of(config.benchmark).source_root(config)

    def collections(self, config: DistillConfig) -> Sequence[str]:
        """Returns the collections a run reads: training, then validation."""
        return mode_of(config.benchmark).collections(config)

    def shape(self, config: DistillConfig) -> StageShape:
        """Returns what the loop needs to know of `config`."""
        return StageShape(
            seed=config.seed,
            batch_size=config.batch_size,
            collection=self.collections(config)[0],
            precision=config.precision,
            deterministic=config.deterministic,
            sync_batchnorm=config.sync_batchnorm,
            compile=config.compile,
            grad_clip_norm=config.grad_clip,
            scalars_every_steps=config.log_scalars_frequency,
            pictures_every_steps=0,
            loader_threads=config.num_workers or loader_threads(),
            batches_ahead=config.prefetch_factor,
            canonical_nodes=config.canonical_nodes,
            session_cache_backend=config.session_cache_backend,
            loader=config.loader,
            accumulate_steps=config.accumulation_steps,
            ema_decay=config.ema_decay if config.ema else 0.0,
            freeze_batchnorm=config.freeze_bn,
            gradient_checkpointing=config.size.checkpointing,
            split_when_out_of_memory=config.split_when_out_of_memory,
            best_metric=config.best_metric,
            patience_epochs=config.patience,
            overfit_samples=config.overfit_tiny,
            max_samples=config.max_train_samples,
            max_validation_samples=config.max_val_samples,
        )

    def samples(self, config: DistillConfig, cache: CacheReader | None) -> SampleSource:
        """Returns the training samples; raises BadConfig where there is no cache and the config needs one."""
        return mode_of(config.benchmark).samples(config, cache, "train")

    def validation_samples(self, config: DistillConfig, cache: CacheReader | None) -> SampleSource:
        """Returns the validation samples."""
        return mode_of(config.benchmark).samples(config, cache, "val")

    def collate(self, samples: Sequence[Sample]) -> Batch:
        """Stacks samples, texts to lists; raises BadData naming the key whose values have different shapes."""
        from lead_trainer.data.stacked_samples import stacked

        return stacked(samples)

    def model(self, config: DistillConfig) -> "torch.nn.Module":
        """Returns a student with fresh weights."""
        from lead_trainer.recipes.distill.model import build_model

        return build_model(config)

    def load_initial_weights(
        self, model: "torch.nn.Module", config: DistillConfig, state: Mapping[str, "torch.Tensor"]
    ) -> None:
        """Loads another run's weights; raises BadConfig unless they are of the same student."""
        if fault := foreign_weights(model.state_dict(), state):
            raise BadConfig(f"load_file: {fault}")
        if fault := weights_fault(model.state_dict(), state):
            raise BadConfig(f"load_file: its weights are of another student: {fault}; give the keys it had")
        try:
            model.load_state_dict(state)
        except RuntimeError as error:  # shapes
            what = str(error).splitlines()[1].strip()
            raise BadConfig(f"load_file: its weights are of another student: {what}; give the keys it had") from error

    def optimizer(self, model: "torch.nn.Module", config: DistillConfig) -> "torch.optim.Optimizer":
        """Returns AdamW, norms and biases not decayed."""
        from lead_trainer.engine.optim import AdamWSettings, make_adamw

        settings = AdamWSettings(lr=config.lr, weight_decay=config.weight_decay, decay_norms_and_biases=False)
        return make_adamw(model, settings)

    def lr_factor(self, config: DistillConfig, step: int, steps_per_epoch: int, epochs: int) -> float:
        """Returns the factor of a step: a linear warm-up of whole epochs, then a cosine over the rest, or 1."""
        warmup = config.warmup_epochs * steps_per_epoch
        rest = max(steps_per_epoch * epochs - warmup, 1)
        if step < warmup or config.lr_schedule == "constant":
            return warmed_up(constant, warmup)(step)
        return cosine(rest)(step - warmup)

    def step(self, model: "torch.nn.Module", batch: Batch, config: DistillConfig) -> StepOutput:
        """Runs forward and losses of one batch."""
        from lead_trainer.recipes.distill.losses import compute_losses, reasoning_scale

        scale = reasoning_scale(config, int(batch["epoch"][0])) if config.model == "reasoning" else 1.0
        report = compute_losses(config, model(batch), batch, scale)
        return StepOutput(loss=report.total, parts={tag: value.detach() for tag, value in report.parts.items()})

    def evaluate(self, model: "torch.nn.Module", batch: Batch, config: DistillConfig) -> Evaluation:
        """Runs losses, with the reasoning's whole weight, and metrics of one batch."""
        from lead_trainer.recipes.distill.losses import compute_losses
        from lead_trainer.recipes.distill.metrics import action_ends, action_totals, trajectory_totals

        predictions = model(batch)
        report, count = compute_losses(config, predictions, batch), len(batch["speed"])
        losses = {"loss": report.total, **{f"{tag}_loss": value for tag, value in report.parts.items()}}
        return Evaluation(
            {
                **{tag: (value * count, count) for tag, value in losses.items()},
                **trajectory_totals(predictions, batch),
                **action_totals(config, predictions),
                **mode_of(config.benchmark).metrics(config, predictions, batch),
            },
            action_ends(config, predictions),
        )

    def validation_metrics(self, config: DistillConfig, means: Mapping[str, float]) -> Mapping[str, float]:
        """Returns the means, and spreads in place of mean squares."""
        from lead_trainer.recipes.distill.metrics import with_spreads

        return with_spreads(means)

    def warnings(self, config: DistillConfig) -> Sequence[str]:
        """Returns what is said before a local run begins."""
        said = fresh_frozen_norms(config)
        return [said] if said else []

    def next_command(self, config: DistillConfig, weights: Path, logdir: Path, preset: str = "") -> str:
        """Returns how these weights are measured."""
        command = f"evaluate: lead evaluate {shlex.quote(str(weights))}"
        if not config.overfit_tiny:
            return command
        return f"{command} (on the whole split; only {config.overfit_tiny} samples were trained: overfit_tiny)"

    def watch_rules(self, config: DistillConfig) -> Sequence[WatchRule]:
        """Returns the guide's advice, and in pods what a local run is warned of before it begins."""
        said = fresh_frozen_norms(config)
        return (*GUIDE_RULES, WatchRule("fresh-frozen-norms", lambda history: said if history else None))

    def picture(self, config: DistillConfig, batch: Batch, outputs: Any) -> npt.NDArray[np.uint8] | None:
        """Draws nothing."""
        return None

    def run_kind(self, config: DistillConfig) -> str:
        """Returns the model: the guide's runs share a folder."""
        return config.model

    def checkpoint_names(self, epoch: int) -> Mapping[str, str]:
        """Returns the names of a checkpoint's files where the config is not known."""
        names = {part: f"{part}_epoch{epoch + 1}.pt" for part in ("model", "optimizer", "scheduler", "scaler")}
        return {**names, "skipped": f"gradient_steps_skipped_epoch{epoch + 1}.txt"}

    def file_names(self, config: DistillConfig, epoch: int) -> Mapping[str, str]:
        """Returns `{model}_seed{seed}_epoch{N}.pt` for the weights, and beside it what resuming needs."""
        stem = f"{config.model}_seed{config.seed}_epoch{epoch + 1}"
        parts = {part: f"{stem}_{part}.pt" for part in ("optimizer", "scheduler", "scaler", "ema", "clipper")}
        return {"model": f"{stem}.pt", **parts, "skipped": f"{stem}_skipped.txt"}

    def shown_names(self, config: DistillConfig, epoch: int, *, newest: bool, best: bool) -> Sequence[str]:
        """Returns `{model}_seed{seed}_latest.pt`, `…_best.pt`, and every `save_every` epochs `…_epochN.pt`.

        With `save_final_only` nothing but the best is shown.
        """
        every = (epoch + 1) % config.save_every == 0
        words = [("best", best), ("latest", newest), (f"epoch{epoch + 1}", every)]
        shown = words[:1] if config.save_final_only else words
        return [f"{config.model}_seed{config.seed}_{word}.pt" for word, holds in shown if holds]


RECIPE = DistillRecipe()
