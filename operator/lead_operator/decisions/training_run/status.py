"""The whole status of a TrainingRun, from what was seen and what was decided. Pure.

It holds no clock: a field that tells a time keeps it until what it speaks of changes, so that an unchanged world
gives an unchanged status and no write.
"""

import statistics
from collections.abc import Iterator
from dataclasses import replace

from lead_operator.decisions.conditions import update_conditions
from lead_operator.decisions.formatting import format_number, format_time, plausible_time
from lead_operator.decisions.observed import ObservedPod
from lead_operator.decisions.training_run.findings import run_findings
from lead_operator.decisions.training_run.pod_group import cache_nodes
from lead_operator.decisions.training_run.progress import without_live_fields
from lead_operator.decisions.training_run.session_cache_figures import cache_figures
from lead_operator.decisions.training_run.state import InstanceState, Step
from lead_operator.decisions.training_run.view import InstanceView, RunView
from lead_operator.names import RunPhase
from lead_operator.objects.training_pod import instance_keys
from lead_operator.resources.training_run_status import (
    BookStatus,
    DatasetStatus,
    InstanceStatus,
    PodsStatus,
    ProgressStatus,
    SeedStatistics,
    StageStatus,
    TrainingRunStatus,
)

MAX_NODES = 64


def build_run_status(view: RunView, step: Step) -> TrainingRunStatus:
    """Returns the status as it should read."""
    state, generation = step.states[view.position], view.run.identity.generation
    pods = tuple(pod for i in view.positions for pod in step.states[i].attempt_pods)
    held = () if step.phase is RunPhase.SUSPENDED else pods  # the last ones may be about to go
    nodes = tuple(dict.fromkeys(p.node for p in held if p.node))[:MAX_NODES]
    finished = step.phase in (RunPhase.SUCCEEDED, RunPhase.FAILED)
    running, progress = step.phase is RunPhase.RUNNING, view.progress.fields
    cache_hits, cache = cache_figures(view.progress.record, view.observed.status)
    return TrainingRunStatus(
        observed_generation=generation,
        phase=step.phase.value,
        reason=step.reason,
        config_hash=view.started_hash,
        stage=_stage(view, state),
        stages=tuple(_instance_entry(view, step, i) for i in range(len(step.states))),
        seed_statistics=tuple(_seed_statistics(view, step)),
        datasets=_datasets(view, step),
        progress=progress if running else without_live_fields(progress),
        checkpoint=view.checkpoint,
        resumed_from=_resumed_from(view, state),
        restarts=None if view.observed.accounts_unknown else step.restarts.to_status(),
        last_failure=step.last_failure,
        pods=_pods(view, pods),
        nodes=nodes,
        nodes_text=",".join(nodes)[:256],
        cache_nodes=cache_nodes(view),
        cache_hits=cache_hits,
        cache=cache,
        start_time=step.start_time,
        completion_time=_ended_at(view) if finished else None,
        conditions=update_conditions(
            view.observed.status.conditions, run_findings(view, step), generation=generation, now=view.observed.now
        ),
    )


def is_urgent(previous: TrainingRunStatus, status: TrainingRunStatus) -> bool:
    """Returns whether a person waits for this change: not a mere step further."""

    def told(s: TrainingRunStatus) -> list[object]:
        conditions = [(c.type, c.status, c.reason) for c in s.conditions]
        stages = [(e.attempt, e.book, e.epoch) for e in s.stages]
        return [
            s.phase,
            s.stage,
            s.progress and s.progress.epoch,
            s.checkpoint and s.checkpoint.step,
            conditions,
            stages,
        ]

    return told(previous) != told(status)


def _ended_at(view: RunView) -> str:
    recorded = view.observed.ended
    return (plausible_time(recorded.ended_at) if recorded else None) or format_time(view.observed.now)


def _stage(view: RunView, state: InstanceState) -> StageStatus:
    return StageStatus(
        text=state.instance.text,
        name=state.instance.stage.name,
        seed=state.instance.seed,
        index=view.position + 1,
        total=len(view.states),
    )


def _instance_entry(view: RunView, step: Step, position: int) -> InstanceStatus:
    state = step.states[position]
    told = view.told.get(position)
    record = told.progress.record if told else (state.bucket.progress if state.bucket else None)
    best, loss, epoch = state.best, state.loss, 0
    if record is not None and record.best_metric is not None:
        best = format_number(record.best_metric)
    if record is not None and record.loss is not None:
        loss = format_number(record.loss)
    if told:
        epoch = told.progress.fields.epoch or 0
    if state.succeeded:
        epoch = state.epochs_trained
    beside = told is not None and position != view.position and state.attempt > 0
    return InstanceStatus(
        name=state.instance.stage.name,
        seed=state.instance.seed,
        phase=step.phase_of(position).value,
        attempt=state.attempt,
        epoch=epoch,
        epochs=state.instance.stage.epochs,
        loss=loss,
        best=best,
        checkpoint=_checkpoint_uri(view, position, state),
        progress=_told_beside(told, state) if told and beside else None,
        start_time=state.start_time,
        completion_time=state.completion_time,
        book=_book(state) if state.attempt > 0 else None,
    )


def _book(state: InstanceState) -> BookStatus:
    return state.streak.added_to(
        BookStatus(ended_attempt=state.ended, created=state.created, attempt_time=state.attempt_time or None)
    )


def _told_beside(told: InstanceView, state: InstanceState) -> ProgressStatus:
    return told.progress.fields if state.active else without_live_fields(told.progress.fields)


def _checkpoint_uri(view: RunView, position: int, state: InstanceState) -> str:
    if position in view.told:
        unread = state.checkpoint_uri if state.bucket is None or state.lost_step else ""
        shown = view.told[position].checkpoint
        return (shown.uri if shown is not None else "") or unread
    found = state.checkpoint
    keys = instance_keys(view.run, state.instance)
    if found is None or view.profile is None or not found.prefix.startswith(keys.prefix) or ".." in found.prefix:
        return state.checkpoint_uri
    return view.profile.uri(found.prefix)


def _seed_statistics(view: RunView, step: Step) -> Iterator[SeedStatistics]:
    for stage in view.run.stages:
        if len(stage.seeds) < 2:
            continue
        entries = [
            _instance_entry(view, step, i)
            for i, s in enumerate(step.states)
            if s.instance.stage.name == stage.name and s.succeeded
        ]
        values = [float(entry.best) for entry in entries if entry.best]
        if values:
            yield _statistics(stage.name, values)


def _statistics(stage: str, values: list[float]) -> SeedStatistics:
    mean = format_number(statistics.fmean(values))
    found = SeedStatistics(stage=stage, seeds=len(values), mean=mean, text=mean)
    if len(values) < 2:
        return found
    std = format_number(statistics.stdev(values))
    return replace(found, std=std, text=f"{mean} ± {std}")


def _datasets(view: RunView, step: Step) -> tuple[DatasetStatus, ...]:
    if not any(state.attempt for state in step.states):
        return ()  # nothing is pinned before the first attempt
    sources = view.datasets.sources.values()
    return tuple(DatasetStatus(name=s.name, digest=s.digest, manifest_sha256=s.manifest_sha256) for s in sources)


def _resumed_from(view: RunView, state: InstanceState) -> str:
    record, before = view.progress.record, view.observed.status
    if record is not None and record.attempt == state.attempt and record.resumed_from_step is not None:
        return f"step {record.resumed_from_step}"
    shown = before.stage
    same = shown is not None and (shown.name, shown.seed) == (state.instance.stage.name, state.instance.seed)
    return before.resumed_from if same else ""


def _pods(view: RunView, pods: tuple[ObservedPod, ...]) -> PodsStatus:
    desired = view.run.nodes * len(view.positions)
    ready = sum(1 for p in pods if p.ready and p.phase == "Running")
    return PodsStatus(desired=desired, ready=ready, text=f"{ready}/{desired}")
