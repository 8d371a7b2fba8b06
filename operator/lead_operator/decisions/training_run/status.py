"""The whole status of a TrainingRun, from what was seen and what was decided. Pure.

It holds no clock: a time field keeps its value until its subject changes, so that an unchanged world
gives an unchanged status and no write.
"""

import statistics
from collections.abc import Iterator

from lead_operator.decisions.conditions import update_conditions
from lead_operator.decisions.formatting import format_number, format_time, plausible_time
from lead_operator.decisions.observed import ObservedPod
from lead_operator.decisions.training_run.display import run_display
from lead_operator.decisions.training_run.findings import run_findings
from lead_operator.decisions.training_run.pod_group import cache_nodes
from lead_operator.decisions.training_run.progress import final_fields, without_live_fields
from lead_operator.decisions.training_run.session_cache_counters import session_cache_counters
from lead_operator.decisions.training_run.state import InstanceState, Step
from lead_operator.decisions.training_run.view import RunView, observe_instance
from lead_operator.names import RunPhase
from lead_operator.resources.training_run_status import (
    DatasetStatus,
    InstanceStatus,
    PodsStatus,
    ProgressStatus,
    RestartState,
    RunDisplay,
    SeedStatistics,
    TrainingRunStatus,
)
from lead_protocol.progress_record import ProgressRecord

MAX_NODES = 64


def build_run_status(view: RunView, step: Step) -> TrainingRunStatus:
    """Returns the status as it should read."""
    state, generation = step.states[view.position], view.run.identity.generation
    group = tuple(pod for i in view.positions for pod in step.states[i].attempt_pods)
    held = () if step.phase is RunPhase.SUSPENDED else group  # the last ones may be about to go
    nodes = tuple(dict.fromkeys(p.node for p in held if p.node))[:MAX_NODES]
    finished = step.phase in (RunPhase.SUCCEEDED, RunPhase.FAILED)
    stages = tuple(_instance_entry(view, step, i) for i in range(len(step.states)))
    session_cache = session_cache_counters(view.progress.record, view.observed.status.session_cache)
    pods = _pods(view, step.states, group)
    return TrainingRunStatus(
        observed_generation=generation,
        phase=step.phase.value,
        reason=step.reason,
        display=run_display(stages[view.position], state.instance.text, pods, nodes, session_cache),
        config_hash=view.started_hash,
        stages=stages,
        seed_statistics=tuple(_seed_statistics(view, stages)),
        datasets=_datasets(view, step),
        restarts=None if view.observed.accounts_unknown else step.restarts.to_status(),
        last_failure=step.last_failure,
        pods=pods,
        nodes=nodes,
        cache_nodes=cache_nodes(view),
        session_cache=session_cache,
        start_time=step.start_time,
        completion_time=_ended_at(view) if finished else None,
        conditions=update_conditions(
            view.observed.status.conditions, run_findings(view, step), generation=generation, now=view.observed.now
        ),
    )


def is_urgent(previous: TrainingRunStatus, status: TrainingRunStatus) -> bool:
    """Returns whether a person waits for this change: not a mere step further."""

    def shown(s: TrainingRunStatus) -> list[object]:
        shown = s.display or RunDisplay()
        conditions = [(c.type, c.status, c.reason) for c in s.conditions]
        stages = [(e.attempt, e.restart_state, e.progress and e.progress.epoch) for e in s.stages]
        return [s.phase, shown.stage, shown.epoch, shown.checkpoint_time, conditions, stages]

    return shown(previous) != shown(status)


def _ended_at(view: RunView) -> str:
    recorded = view.observed.ended
    return (plausible_time(recorded.ended_at) if recorded else None) or format_time(view.observed.now)


def _instance_entry(view: RunView, step: Step, position: int) -> InstanceStatus:
    state = step.states[position]
    seen = view.reported.get(position) or observe_instance(view.run, state, view.profile, view.observed.now)
    record = seen.progress.record
    best = record.best_metric if record is not None else None
    return InstanceStatus(
        name=state.instance.stage.name,
        seed=state.instance.seed,
        phase=step.phase_of(position).value,
        attempt=state.attempt,
        resumed_from_step=_resumed_from_step(state, record),
        best=state.best if best is None else format_number(best),
        progress=_progress(view, step, position, seen.progress.fields),
        checkpoint=seen.checkpoint,
        start_time=state.start_time,
        completion_time=state.completion_time,
        restart_state=_restart_state(state) if state.attempt > 0 else None,
    )


def _progress(view: RunView, step: Step, position: int, fields: ProgressStatus) -> ProgressStatus:
    state = step.states[position]
    if position in view.positions:
        return fields if step.phase_of(position) is RunPhase.RUNNING else without_live_fields(fields)
    return final_fields(state, fields) if state.attempt > 0 else ProgressStatus(epochs=state.instance.stage.epochs)


def _resumed_from_step(state: InstanceState, record: ProgressRecord | None) -> int | None:
    if record is not None and record.attempt == state.attempt and record.resumed_from_step is not None:
        return record.resumed_from_step
    return state.resumed_from_step


def _restart_state(state: InstanceState) -> RestartState:
    return state.backoff.added_to(
        RestartState(ended_attempt=state.ended, created=state.created, attempt_time=state.attempt_time or None)
    )


def _seed_statistics(view: RunView, stages: tuple[InstanceStatus, ...]) -> Iterator[SeedStatistics]:
    for stage in view.run.stages:
        if len(stage.seeds) < 2:
            continue
        ended = [entry for entry in stages if entry.name == stage.name and entry.phase == RunPhase.SUCCEEDED]
        values = [float(entry.best) for entry in ended if entry.best]
        if values:
            yield _statistics(stage.name, values)


def _statistics(stage: str, values: list[float]) -> SeedStatistics:
    std = format_number(statistics.stdev(values)) if len(values) > 1 else ""
    return SeedStatistics(stage=stage, seeds=len(values), mean=format_number(statistics.fmean(values)), std=std)


def _datasets(view: RunView, step: Step) -> tuple[DatasetStatus, ...]:
    if not any(state.attempt for state in step.states):
        return ()  # nothing is pinned before the first attempt
    sources = view.datasets.sources.values()
    return tuple(DatasetStatus(name=s.name, digest=s.digest, manifest_sha256=s.manifest_sha256) for s in sources)


def _pods(view: RunView, states: tuple[InstanceState, ...], pods: tuple[ObservedPod, ...]) -> PodsStatus:
    desired = sum(state.nodes if state.active else view.run.nodes for state in (states[i] for i in view.positions))
    ready = sum(1 for p in pods if p.ready and p.phase == "Running")
    return PodsStatus(desired=desired, ready=ready)
