"""One rank of one attempt, from a job to its last commit: everything is opened here, and handed to the loop.

Called by `worker` in a pod and by `lead train` on a laptop. A step that does not fit into memory starts the training
once more, one rung further down (`memory`).
"""

import os
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
import torch

from lead_protocol.job import TrainJob
from lead_protocol.manifests import CheckpointManifest
from lead_protocol.progress_record import Advisory, ProgressRecord
from lead_protocol.store.object_store import ObjectStore, StoreError
from lead_trainer.contract.installed import load_recipe
from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.samples import Samples
from lead_trainer.data.loader import on_device_of
from lead_trainer.data.node_shares import shares_advice
from lead_trainer.data.process_loader import loader_named
from lead_trainer.engine.agreement import done_by_first
from lead_trainer.engine.attempt import claim_attempt
from lead_trainer.engine.checkpoint import CheckpointIdentity, file_names
from lead_trainer.engine.commit import Checkpointer
from lead_trainer.engine.dataset import Dataset, open_dataset
from lead_trainer.engine.ddp import Group, lost_peer_behind
from lead_trainer.engine.epoch_plan import EpochPlan, StagePlan
from lead_trainer.engine.first_rank import FirstRank, checkpoint_reference
from lead_trainer.engine.hooks import Hooks
from lead_trainer.engine.later_stages import check_later_stages
from lead_trainer.engine.loading_figures import LoadingFigures
from lead_trainer.engine.lr_finder import Curve, sweep_stage
from lead_trainer.engine.memory import (
    OutOfMemory,
    Rung,
    StepTooLarge,
    memory_errors_named,
    next_rung,
    record_rung,
    recorded_rung,
)
from lead_trainer.engine.perf import StepClock
from lead_trainer.engine.precision import chosen_dtype
from lead_trainer.engine.progress import Mailbox
from lead_trainer.engine.ranking import VALIDATION, Ranking, ranking_of
from lead_trainer.engine.resume import config_digest, not_learned
from lead_trainer.engine.retention import Retention
from lead_trainer.engine.retry_budget import RetryBudget
from lead_trainer.engine.seeding import fix_algorithms
from lead_trainer.engine.stage_config import resolve_config
from lead_trainer.engine.stage_samples import StageSamples, limited
from lead_trainer.engine.start import Start, build_state, choose_checkpoint
from lead_trainer.engine.state import TrainState
from lead_trainer.engine.stop import StopFlag
from lead_trainer.engine.validation import Validator
from lead_trainer.engine.watch import ENGINE_RULES
from lead_trainer.errors import StopRequested, TrainerError
from lead_trainer.loop import Stage, train
from lead_trainer.report.picture_files import PictureFiles
from lead_trainer.report.sinks import Sink, Sinks
from lead_trainer.report.tensorboard import EventFile
from lead_trainer.report.wandb import WandbRun, wandb_settings

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Place:
    """Where an attempt keeps things, and what a laptop adds to a pod."""

    store: ObjectStore
    scratch: Path  # shared by the ranks of a node
    session_cache: Path | None = None
    termination_log: Path | None = None
    initial_weights: Path | None = None
    dataset_store: ObjectStore | None = None  # where caches are, if elsewhere
    events_folder: Path | None = None  # where event files are written, if not to scratch
    pictures_folder: Path | None = None  # where pictures are written as files too, if anywhere
    reported: frozenset[str] = frozenset()  # advice that a person has read before the run began
    wandb_identity: str = ""  # what W&B knows the run by, where its UID is not unique
    after_commit: Callable[[CheckpointManifest], None] = lambda manifest: None
    removes_old_checkpoints: bool = True  # False in a pod, which may not delete: the operator does it


def run_attempt(job: TrainJob, place: Place, group: Group, stop: StopFlag) -> None:
    """Trains one attempt to its end; raises StopRequested, a TrainerError or a StoreError, each told in progress."""
    recipe = load_recipe(job.recipe)
    config = resolve_config(recipe, job)
    done_by_first(group, lambda: claim_attempt(place.store, job.keys, job.attempt, _owner(), run=job.owner.name))
    mailbox = _open_mailbox(job, place) if group.world.is_first else None
    try:
        Attempt(job=job, place=place, group=group, stop=stop, recipe=recipe, config=config, mailbox=mailbox).run()
    except BaseException as error:
        if mailbox is not None:
            phase = "Stopped" if isinstance(error, StopRequested) else "Failed"
            mailbox.close(phase, sentence(lost_peer_behind(error, group.world) or error))
        raise
    if mailbox is not None:
        mailbox.close("Done")


def sentence(error: BaseException) -> str:
    """Returns what the user reads of an error."""
    text = str(error) or type(error).__name__
    return text if isinstance(error, TrainerError) else f"{type(error).__name__}: {text}"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """Everything that one rank of an attempt was given."""

    job: TrainJob
    place: Place
    group: Group
    stop: StopFlag
    recipe: Recipe[Any]
    config: Any
    mailbox: Mailbox | None = None  # None on every rank but the first

    def run(self) -> None:
        """Trains, in smaller parts where memory asks for it and the config allows it."""
        fix_algorithms(self.config.deterministic)
        first = Rung(self.config.saves_memory)
        if not self.config.split_when_out_of_memory:
            with memory_errors_named():
                return self._train(first)
        store, keys = self.place.store, self.job.keys
        recorded = done_by_first(self.group, lambda: vars(recorded_rung(store, keys, first, self._rank_batch)))
        rung = Rung(**recorded)
        while True:
            try:
                with memory_errors_named():
                    return self._train(rung)
            except OutOfMemory as error:
                rung = self._after_out_of_memory(rung, error)
            torch.cuda.empty_cache()

    @property
    def _rank_batch(self) -> int:
        batch_size: int = self.config.batch_size
        return batch_size // self.group.world.world_size

    def _after_out_of_memory(self, rung: Rung, error: OutOfMemory) -> Rung:
        can_checkpoint = self.recipe.save_memory is not None
        following = next_rung(rung, self._rank_batch, can_checkpoint=can_checkpoint)
        if following is None:
            raise error
        record_rung(self.place.store, self.job.keys, following, self._rank_batch)
        log.warning("a step did not fit into memory", next_parts=following.parts,
                    gradient_checkpointing=following.gradient_checkpointing, error=str(error))  # fmt: skip
        if self.group.world.world_size > 1:
            raise StepTooLarge(
                f"{error}; the next attempt cuts each batch into {following.parts} parts"
                + (" and recomputes activations" if following.gradient_checkpointing else "")
            ) from error
        return following

    def lr_curve(self, least: float, most: float, steps: int) -> Curve:
        """Sweeps the learning rate on fresh weights, which are then thrown away; nothing is committed."""
        with self._dataset() as dataset:
            rung = Rung(self.config.saves_memory)
            samples = limited(self.recipe, self.config, dataset)
            start, stage = self._start(rung, samples, dataset), self._stage(samples, rung)
            return sweep_stage(stage, build_state(start, None, stage.device, stage.dtype), least, most, steps)

    def validation_of_weights(self) -> dict[str, float] | None:
        """Validates the weights that the attempt begins with; returns the metrics by name, None without a split."""
        with self._dataset() as dataset:
            rung = Rung(self.config.saves_memory)
            samples = limited(self.recipe, self.config, dataset)
            stage = self._stage(samples, rung)
            validator = self._validator(samples.validation, stage)
            if validator is None:
                return None
            state = build_state(self._start(rung, samples, dataset), None, stage.device, stage.dtype)
            found = validator.run(state)
            assert found is not None  # nobody asks it to stop
            return {tag.removeprefix(VALIDATION): value for tag, value in found.values.items()}

    def _train(self, rung: Rung) -> None:
        if self.mailbox is not None:
            self.mailbox.update(urgent=True, phase="Loading")
        with self._dataset() as dataset:
            if self.job.later_jobs:
                done_by_first(self.group, lambda: check_later_stages(self.job, self.recipe, dataset))
            self._train_on(dataset, rung)

    @contextmanager
    def _dataset(self) -> Iterator[Dataset]:
        folder = self.place.session_cache if self.config.use_training_session_cache else None
        store = self.place.dataset_store or self.place.store
        dataset = open_dataset(self.job, self.recipe, self.config, store, folder)
        try:
            yield dataset
        finally:
            dataset.close()

    def _start(self, rung: Rung, samples: StageSamples, dataset: Dataset) -> Start:
        config_json = self.recipe.config_document(self.config)
        ranking = ranking_of(self.config, validates=samples.validation is not None)
        return Start(
            job=self.job,
            recipe=self.recipe,
            config=self.config,
            config_json=config_json,
            gradient_checkpointing=rung.gradient_checkpointing,
            group=self.group,
            store=self.place.store,
            identity=self._identity(config_json, rung, ranking),
            scratch=self.place.scratch,
            budget=RetryBudget(on_wait=self._tell_wait),
            ranking=ranking,
            caches=dataset.caches,
            initial_weights=self.place.initial_weights,
        )

    def _stage(self, samples: StageSamples, rung: Rung) -> Stage:
        config, world, epochs = self.config, self.group.world, self.job.epochs
        loader = loader_named(config.loader)(
            samples.training,
            self.recipe.collate,
            batch_size=config.batch_size,
            seed=config.seed,
            rank=world.rank,
            world_size=world.world_size,
            canonical_nodes=config.canonical_nodes,
            threads=config.loader_threads,
            batches_ahead=config.prefetch_factor,
            device=self.group.device,
            on_device=on_device_of(self.recipe, config),
        )
        batches = [loader.steps_per_epoch(epoch) for epoch in range(epochs)]
        return Stage(
            recipe=self.recipe,
            config=config,
            epochs=epochs,
            group=self.group,
            device=self.group.device,
            dtype=chosen_dtype(config.number_format, self.group.device),
            loader=loader,
            plan=StagePlan.of(batches, self._rank_batch, config.gradient_accumulation_steps, rung.parts),
            lr_factor=lambda at: self.recipe.lr_factor(config, at),
        )

    def _train_on(self, dataset: Dataset, rung: Rung) -> None:
        samples = limited(self.recipe, self.config, dataset)
        start = self._start(rung, samples, dataset)
        found = choose_checkpoint(start)
        stage = self._stage(samples, rung)
        state = build_state(start, found, stage.device, stage.dtype)
        optimizers = [part for part in state.optimizers.parts().values() if part != "optimizer"]
        checkpointer = Checkpointer(
            self.group, self.place.store, start.identity,
            lambda at: file_names(self.recipe, self.config, at, optimizers),
            start.config_json, self.place.scratch, start.budget,
        )  # fmt: skip
        if found is not None:
            checkpointer.resumed_from(found)
        clock, figures = StepClock(self.group.device), LoadingFigures(self.group.world, dataset, stage.loader)
        hooks = Hooks(
            group=self.group,
            recipe=self.recipe,
            config=self.config,
            policy=self.job.checkpoint,
            plan=stage.plan,
            epochs=self.job.epochs,
            loader=stage.loader,
            samples=samples.training,
            checkpointer=checkpointer,
            stop=self.stop,
            grace_period_s=self.job.grace_period_s,
            clock=clock,
            figures=figures,
            validator=self._validator(samples.validation, stage),
            rules=(*ENGINE_RULES, *self.recipe.reports.watch_rules(self.config)),
            first=self._first_rank(state, checkpointer, stage, figures, rung),
        )
        first_epoch = stage.plan.epoch(0)
        log.info("training", recipe=self.job.recipe, ranks=self.group.world.world_size, device=str(self.group.device),
                 precision=str(stage.dtype).removeprefix("torch."), epochs=self.job.epochs, steps=stage.plan.steps,
                 steps_per_epoch=first_epoch.steps, batch=self.config.batch_size * first_epoch.accumulate,
                 parts=rung.parts, first_step=state.step)  # fmt: skip
        advice = shares_advice(self.job.nodes, self.group.world.world_size, self.config.canonical_nodes)
        if advice and self.job.datasets:
            log.info(advice)
        if state.epoch >= self.job.epochs or state.ranking.stops_early:
            log.info("nothing is left to train: this run is finished; more epochs, or resume=never, train on",
                     epoch=state.epoch, of=self.job.epochs, step=state.step)  # fmt: skip
        try:
            train(stage, state, hooks)
        finally:
            if hooks.first is not None:
                hooks.first.events.close()
                self._record_speed(clock, first_epoch, stage.dtype)

    def _identity(self, config_json: Mapping[str, Any], rung: Rung, ranking: Ranking) -> CheckpointIdentity:
        return CheckpointIdentity(
            keys=self.job.keys,
            attempt=self.job.attempt,
            recipe=self.job.recipe,
            config_sha256=config_digest(config_json, not_learned(self.recipe)),
            dataset_digests=tuple(dataset.digest for dataset in self.job.datasets),
            dataset_manifests=tuple(dataset.manifest_sha256 for dataset in self.job.datasets),
            world_size=self.group.world.world_size,
            parts=rung.parts,
            best_by=ranking.metric,
            best_is_greatest=ranking.greatest,
        )

    def _validator(self, samples: Samples | None, stage: Stage) -> Validator | None:
        if samples is None or self.recipe.validation is None:
            return None
        plan = stage.plan.epoch(0)
        return Validator(
            recipe=self.recipe,
            validation=self.recipe.validation,
            config=self.config,
            plan=stage.plan,
            samples=samples,
            rank_batch=max(1, plan.rank_batch // plan.parts),
            threads=self.config.loader_threads,
            group=self.group,
            dtype=stage.dtype,
        )

    def _first_rank(
        self, state: TrainState, checkpointer: Checkpointer, stage: Stage, figures: LoadingFigures, rung: Rung
    ) -> FirstRank | None:
        if self.mailbox is None:
            return None
        resumed = checkpointer.manifest
        self.mailbox.update(
            steps=stage.plan.steps,
            step=state.step,
            epoch=state.epoch,
            best_metric=state.best_metric,
            resumed_from_step=state.step if resumed else None,
            checkpoint=checkpoint_reference(resumed, checkpointer.manifest_key).model_dump() if resumed else None,
        )
        keeps = Retention(self.place.store, self.job.keys, self.job.checkpoint)
        first = FirstRank(
            recipe=self.recipe,
            config=self.config,
            mailbox=self.mailbox,
            events=self._sinks(state.step, checkpointer.config),
            retention=keeps if self.place.removes_old_checkpoints else None,
            after_commit=self.place.after_commit,
            data_counters=figures.told,
            reported=self.place.reported,
        )
        if rung.parts > 1:
            text = f"each batch is cut into {rung.parts} parts to fit into memory; batch norms see smaller batches"
            first.advise(state, [Advisory(rule="memory", epoch=state.epoch, message=text)])
        return first

    def _sinks(self, first_step: int, config_json: Mapping[str, Any]) -> Sink:
        prefix = self.job.keys.tensorboard_prefix
        events = EventFile(
            self.place.events_folder or self.place.scratch / "tensorboard",
            None if self.place.events_folder else self.place.store,
            prefix,
            attempt=self.job.attempt,
            first_step=first_step,
            on=self.job.logging.tensorboard,
        )
        settings = wandb_settings(
            self.job, self.recipe.reports.wandb(self.config), os.environ, identity=self.place.wandb_identity
        )
        sinks: list[Sink] = [events]
        if self.place.pictures_folder is not None:
            sinks.append(PictureFiles(self.place.pictures_folder))
        if settings is not None:
            folder, store = self.place.events_folder or self.place.scratch, self.place.store
            uploads = None if self.place.events_folder else (store, f"{prefix}wandb/")
            sinks.append(WandbRun(settings, config_json, folder, self.place.scratch, uploads))
        return Sinks(tuple(sinks))

    def _record_speed(self, clock: StepClock, plan: EpochPlan, dtype: torch.dtype) -> None:
        batch_size = plan.rank_batch * self.group.world.world_size * plan.accumulate
        record = clock.record(
            batch_size=batch_size, ranks=self.group.world.world_size, precision=str(dtype).removeprefix("torch.")
        )
        if record is None:
            return
        try:
            self.place.store.put(self.job.keys.perf(self.job.attempt), record.model_dump_json(indent=1).encode())
        except StoreError as error:
            log.warning("the speed of this attempt is not recorded", error=str(error))

    def _tell_wait(self, message: str) -> None:
        if self.mailbox is not None:
            self.mailbox.update(urgent=True, message=message)


def _open_mailbox(job: TrainJob, place: Place) -> Mailbox:
    record = ProgressRecord(attempt=job.attempt, seq=0, phase="Starting", epoch=0, epochs=job.epochs, step=0, steps=0)
    return Mailbox(place.store, job.keys.progress(job.attempt), record, place.termination_log)


def _owner() -> str:
    return f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex}"
