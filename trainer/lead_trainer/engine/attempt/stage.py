"""The parts of a stage that need no state: its data, its loader, its validation, and what a start is given."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lead_trainer.contract.samples import Samples
from lead_trainer.data.loader import on_device_of
from lead_trainer.data.process_loader import loader_named
from lead_trainer.engine.attempt.given import Attempt
from lead_trainer.engine.attempt.memory import MemoryPlan
from lead_trainer.engine.attempt.start import Start
from lead_trainer.engine.checkpoints.checkpoint import CheckpointIdentity
from lead_trainer.engine.checkpoints.resume import config_digest, not_learned
from lead_trainer.engine.loop import Stage
from lead_trainer.engine.samples.dataset import Dataset, open_dataset
from lead_trainer.engine.samples.stage_samples import StageSamples
from lead_trainer.engine.step.epoch_plan import StagePlan
from lead_trainer.engine.step.precision import chosen_dtype
from lead_trainer.engine.step.ranking import Ranking, ranking_of
from lead_trainer.engine.step.recipe_parts import collated, rate_factor
from lead_trainer.engine.validation.validation import Validator


@contextmanager
def opened_dataset(attempt: Attempt) -> Iterator[Dataset]:
    """Opens the caches that the job names, with the node's session cache where there is one, and closes them again."""
    location = attempt.location
    folder = location.session_cache if attempt.config.use_training_session_cache else None
    store = location.dataset_store or location.store
    dataset = open_dataset(attempt.job, attempt.recipe, attempt.config, store, folder)
    try:
        yield dataset
    finally:
        dataset.close()


def stage_of(attempt: Attempt, samples: StageSamples, memory_plan: MemoryPlan) -> Stage:
    """Returns what the loop trains: the loader over the training samples, and the plan of its epochs."""
    config, world, epochs = attempt.config, attempt.group.world, attempt.job.epochs
    loader = loader_named(config.loader)(
        samples.training,
        collated(attempt.recipe),
        batch_size=config.batch_size,
        seed=config.seed,
        rank=world.rank,
        world_size=world.world_size,
        canonical_nodes=config.canonical_nodes,
        threads=config.loader_threads,
        batches_ahead=config.prefetch_factor,
        device=attempt.group.device,
        on_device=on_device_of(attempt.recipe, config),
    )
    batches = [loader.steps_per_epoch(epoch) for epoch in range(epochs)]
    return Stage(
        recipe=attempt.recipe,
        config=config,
        epochs=epochs,
        group=attempt.group,
        device=attempt.group.device,
        dtype=chosen_dtype(config.number_format, attempt.group.device),
        loader=loader,
        plan=StagePlan.of(batches, attempt.rank_batch, config.gradient_accumulation_steps, memory_plan.parts),
        lr_factor=lambda at: rate_factor(attempt.recipe, config, at),
    )


def start_of(attempt: Attempt, samples: StageSamples, dataset: Dataset, memory_plan: MemoryPlan) -> Start:
    """Returns what the choice of a checkpoint and the making of a state need."""
    config_json = attempt.recipe.config_document(attempt.config)
    ranking = ranking_of(attempt.config, validates=samples.validation is not None)
    return Start(
        job=attempt.job,
        recipe=attempt.recipe,
        config=attempt.config,
        config_json=config_json,
        gradient_checkpointing=memory_plan.gradient_checkpointing,
        group=attempt.group,
        store=attempt.location.store,
        identity=_identity(attempt, config_json, memory_plan, ranking),
        scratch=attempt.location.scratch,
        budget=attempt.budget,
        ranking=ranking,
        caches=dataset.caches,
        initial_weights=attempt.location.initial_weights,
    )


def validator_of(attempt: Attempt, samples: Samples | None, stage: Stage) -> Validator | None:
    """Returns what validates a stage, None where it has no validation split."""
    if samples is None or attempt.recipe.validation is None:
        return None
    plan = stage.plan.epoch(0)
    return Validator(
        recipe=attempt.recipe,
        validation=attempt.recipe.validation,
        config=attempt.config,
        plan=stage.plan,
        samples=samples,
        rank_batch=max(1, plan.rank_batch // plan.parts),
        threads=attempt.config.loader_threads,
        group=attempt.group,
        dtype=stage.dtype,
    )


def _identity(
    attempt: Attempt, config_json: Mapping[str, Any], memory_plan: MemoryPlan, ranking: Ranking
) -> CheckpointIdentity:
    job = attempt.job
    return CheckpointIdentity(
        keys=job.keys,
        attempt=job.attempt,
        recipe=job.recipe,
        config_sha256=config_digest(config_json, not_learned(attempt.recipe)),
        dataset_digests=tuple(dataset.digest for dataset in job.datasets),
        dataset_manifests=tuple(dataset.manifest_sha256 for dataset in job.datasets),
        world_size=attempt.group.world.world_size,
        parts=memory_plan.parts,
        best_by=ranking.metric,
        best_is_greatest=ranking.greatest,
    )
