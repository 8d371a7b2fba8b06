"""A stage of kind Evaluation: given weights are validated as in training, and the report is committed.

The commit is that of a checkpoint: files first, then one create-only manifest, behind the same fence. It is marked as a
report and as the stage's end, so a second attempt, the operator and retention treat it as any final checkpoint.
"""

import json
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog

from lead_protocol.manifests import CheckpointManifest, sha256_of_file
from lead_trainer.contract.benchmark import Evaluated
from lead_trainer.contract.reports import VALIDATION
from lead_trainer.engine.attempt.given import Attempt
from lead_trainer.engine.attempt.memory import memory_errors_named
from lead_trainer.engine.attempt.start import choose_checkpoint
from lead_trainer.engine.attempt.trials import OpenedStage, opened_stage
from lead_trainer.engine.checkpoints.checkpoint import (
    Committed,
    StagedFile,
    commit_checkpoint,
    parameters_sha256,
)
from lead_trainer.engine.checkpoints.manifest_listing import model_file_name
from lead_trainer.engine.checkpoints.origin import newest_valid_weights
from lead_trainer.engine.group.agreement import done_by_first, report_work
from lead_trainer.engine.reporting.first_rank import checkpoint_reference
from lead_trainer.engine.reporting.shown_metrics import chosen_metrics, shown_metrics
from lead_trainer.engine.step.state import TrainState
from lead_trainer.engine.validation.validation import Validated
from lead_trainer.errors import BadConfig, NoValidCheckpoint, StopRequested
from lead_trainer.report.evaluation import EvaluationReport, Trained, without_prefix, write_report

REPORTED_EVERY_S = 60.0
MOST_PICTURES = 48  # of a report; a manifest names 64 files

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Weights:
    """The weights to measure, on this rank's disk, and the checkpoint they are of."""

    path: Path
    manifest: CheckpointManifest

    def epoch_of(self, epochs: int) -> int:
        """Returns the epochs they were trained for, at most those of the stage."""
        return min(self.manifest.epoch, epochs)


def evaluate(attempt: Attempt) -> None:
    """Measures the weights of `job.init_from` on all ranks and commits the report, unless one is committed already."""
    _report(attempt, urgent=True, phase="Loading")
    weights = _fetched(attempt)
    attempt = replace(
        attempt,
        job=attempt.job.model_copy(update={"init_from": None}),  # from here on they are a file of this machine
        location=replace(attempt.location, initial_weights=weights.path),
    )
    with memory_errors_named(), opened_stage(attempt) as opened:
        if _is_committed(opened):
            return
        if not opened.has_validation:
            raise BadConfig("the config has no validation split to measure on; name one by the recipe's keys")
        state, batches = opened.state(), _Batches(attempt, weights.epoch_of(attempt.job.epochs))
        attempt.stop.trained()  # nothing can be lost: a stop ends the measuring between two batches
        found = opened.validated(state, batches.report)
        committed = Committed.from_json(
            done_by_first(attempt.group, lambda: _commit(opened, weights, state, found, batches).as_json())
        )
    manifest = committed.manifest
    _report(
        attempt,
        urgent=True,
        metrics=shown_metrics(manifest.metrics, chosen_metrics(opened.start.recipe)),
        loss=manifest.metrics.get(f"{VALIDATION}loss"),
        best_metric=manifest.metrics.get(opened.start.ranking.metric),
        best_by=opened.start.ranking.metric,
        checkpoint=checkpoint_reference(manifest, committed.key).model_dump(),
    )
    log.info("evaluated", epoch=manifest.epoch, **manifest.metrics)


@dataclass
class _Batches:
    """Reports each batch that rank 0 has measured, so that a long evaluation is not taken for a hang."""

    attempt: Attempt
    epoch: int
    done: int = 0  # of the validation
    reported_at: float = field(default_factory=time.monotonic)  # to the other ranks, which wait

    def report(self, done: int, of: int) -> None:
        self.done = done
        _report(self.attempt, urgent=done == 1, phase="Evaluating", epoch=self.epoch, step=done, steps=of)

    def report_benchmark(self, done: int, of: int) -> None:
        """Reports a batch of the recipe's benchmark, which follows; raises StopRequested where somebody stops it."""
        if self.attempt.stop.raised:
            raise StopRequested("stopped on request while measuring; nothing is committed")
        if time.monotonic() - self.reported_at >= REPORTED_EVERY_S:
            report_work(self.attempt.group)
            self.reported_at = time.monotonic()
        step, steps = self.done + done, self.done + of
        _report(self.attempt, urgent=done == 1, phase="Evaluating", epoch=self.epoch, step=step, steps=steps)


def _report(attempt: Attempt, **fields: Any) -> None:
    if attempt.writer is not None:
        attempt.writer.update(**fields)


def _fetched(attempt: Attempt) -> Weights:
    job = attempt.job
    if job.init_from is None:
        raise BadConfig(f"spec.stages[{job.stage}]: a stage of kind Evaluation needs initFrom; name a stage or a uri")
    folder = attempt.location.scratch / f"init-{attempt.group.world.rank}"
    attempt.budget.begin()
    path, manifest = newest_valid_weights(attempt.location.store, job.init_from, job.stage, folder, attempt.budget)
    return Weights(path, manifest)


def _is_committed(opened: OpenedStage) -> bool:
    """Returns whether a whole report of this stage is committed; a damaged one is set aside, for nothing is lost."""
    try:
        if choose_checkpoint(opened.start) is None:
            return False
        log.info("an earlier attempt has committed the report")
    except NoValidCheckpoint as error:
        log.warning("the committed report is damaged; the weights are measured again", error=str(error))
        return False
    return True


def _commit(
    opened: OpenedStage, weights: Weights, state: TrainState, found: Validated, batches: _Batches
) -> Committed:  # fmt: skip
    attempt, start = opened.attempt, opened.start
    files = _written(opened, weights, state, found, batches)
    _report(attempt, urgent=True, phase="Checkpointing")
    start.budget.begin()
    return commit_checkpoint(
        start.store,
        start.identity,
        {"step": batches.done, "epoch": weights.epoch_of(attempt.job.epochs), "step_in_epoch": 0},
        files,
        {},
        parameters=parameters_sha256(state.model.state_dict()),
        parent_sha256=None,
        metrics=found.values,
        budget=start.budget,
        scratch=start.scratch,
        final=True,
        is_report=True,
    )


def _written(
    opened: OpenedStage, weights: Weights, state: TrainState, found: Validated, batches: _Batches
) -> dict[str, StagedFile]:
    """Writes the report to the scratch folder, with what the recipe's own benchmark finds; returns its files."""
    attempt, start = opened.attempt, opened.start
    folder, stored = start.scratch / "report", weights.manifest.files[model_file_name(weights.manifest)]
    folder.mkdir(parents=True, exist_ok=True)
    report = EvaluationReport(
        weights=weights.path.name,
        sha256=stored.sha256,
        recipe=start.recipe.name,
        split=VALIDATION.rstrip("/"),
        changed=[],
        datasets=start.identity.dataset_digests,
        metrics=without_prefix(found.values),
        trained=Trained.of(weights.manifest),
        config=start.config_json,
        world_size=attempt.group.world.world_size,
    )
    own = _benchmark(opened, weights, state, report.split, folder, batches)
    write_report(report, own, dict(list(found.pictures.items())[:MOST_PICTURES]), folder)
    log.info(report.verdict())
    config_json = json.dumps(start.config_json, indent=2, sort_keys=True)
    (folder / "config.json").write_text(f"{config_json}\n", encoding="utf-8")
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.name: StagedFile(path, path.stat().st_size, sha256_of_file(path)) for path in files}


def _benchmark(
    opened: OpenedStage, weights: Weights, state: TrainState, split: str, folder: Path, batches: _Batches
) -> Any:  # fmt: skip
    """Returns what the recipe's benchmark finds on the caches of the job; None for a recipe without one."""
    benchmark = opened.start.recipe.benchmark
    if benchmark is None or split not in benchmark.splits:
        return None
    model = state.judged.eval()
    return benchmark.measure(
        Evaluated(
            config=opened.start.config,
            weights=folder / weights.path.name,  # beside which a challenge's file is written
            model=model,
            split=split,
            submission=None,
            caches=lambda collections: opened.start.caches,
            report=batches.report_benchmark,
        )
    )
