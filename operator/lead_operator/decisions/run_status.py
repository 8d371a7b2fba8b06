"""The whole status of a TrainingRun, from what was seen and what was decided. Pure.

It holds no clock: a field that tells a time keeps it until what it speaks of changes, so that an unchanged world
gives an unchanged status and no write.
"""

import statistics
from typing import Any

from lead_operator.decisions.cache_figures import cache_figures
from lead_operator.decisions.conditions import update_conditions
from lead_operator.decisions.figures import format_number, format_time, plausible_time
from lead_operator.decisions.instance_state import InstanceState
from lead_operator.decisions.observed import ObservedPod
from lead_operator.decisions.run_findings import run_findings
from lead_operator.decisions.run_progress import without_live_fields
from lead_operator.decisions.run_step import Step
from lead_operator.decisions.run_view import InstanceView, RunView
from lead_operator.decisions.session_caches import cache_nodes
from lead_operator.names import RunPhase
from lead_operator.objects.training_pod import instance_keys

MAX_NODES = 64


def build_run_status(view: RunView, step: Step) -> dict[str, Any]:
    """Returns the status as it should read; empty fields are left out."""
    state = step.states[view.position]
    pods = tuple(pod for i in view.positions for pod in step.states[i].attempt_pods)
    held = () if step.phase is RunPhase.SUSPENDED else pods  # the last ones may be about to go
    nodes = list(dict.fromkeys(p.node for p in held if p.node))[:MAX_NODES]
    finished = step.phase in (RunPhase.SUCCEEDED, RunPhase.FAILED)
    running = step.phase is RunPhase.RUNNING
    progress = view.progress.fields if running else without_live_fields(view.progress.fields)
    status: dict[str, Any] = {
        "observedGeneration": view.run.identity.generation,
        "phase": step.phase.value,
        "reason": step.reason,
        "configHash": view.started_hash,
        "stage": _stage(view, state),
        "stages": [_instance_entry(view, step, i) for i in range(len(step.states))],
        "seedStatistics": _seed_statistics(view, step),
        "datasets": _datasets(view, step),
        "progress": progress,
        "checkpoint": view.checkpoint,
        "resumedFrom": _resumed_from(view, state),
        "restarts": None if view.observed.accounts_unknown else step.restarts.to_status(),
        "lastFailure": step.last_failure,
        "pods": _pods(view, pods),
        "nodes": nodes,
        "nodesText": ",".join(nodes)[:256],
        "cacheNodes": cache_nodes(view),
        **cache_figures(view.progress.record, view.observed.previous),
        "startTime": step.start_time,
        "completionTime": _ended_at(view) if finished else None,
        "conditions": update_conditions(
            view.observed.previous.get("conditions"),
            run_findings(view, step),
            generation=view.run.identity.generation,
            now=view.observed.now,
        ),
    }
    return {key: value for key, value in status.items() if value not in (None, "", [], {})}


def is_urgent(previous: dict[str, Any], status: dict[str, Any]) -> bool:
    """Returns whether a person waits for this change: not a mere step further."""

    def told(s: dict[str, Any]) -> list[Any]:
        progress, checkpoint = s.get("progress") or {}, s.get("checkpoint") or {}
        conditions = [(c.get("type"), c.get("status"), c.get("reason")) for c in s.get("conditions") or []]
        stages = [(e.get("attempt"), e.get("book"), e.get("epoch")) for e in s.get("stages") or []]
        return [s.get("phase"), s.get("stage"), progress.get("epoch"), checkpoint.get("step"), conditions, stages]

    return told(previous) != told(status)


def _ended_at(view: RunView) -> str:
    recorded = view.observed.ended
    return (plausible_time(recorded.ended_at) if recorded else None) or format_time(view.observed.now)


def _stage(view: RunView, state: InstanceState) -> dict[str, Any]:
    return {
        "text": state.instance.text,
        "name": state.instance.stage.name,
        "seed": state.instance.seed,
        "index": view.position + 1,
        "total": len(view.states),
    }


def _instance_entry(view: RunView, step: Step, position: int) -> dict[str, Any]:
    state = step.states[position]
    told = view.told.get(position)
    record = told.progress.record if told else (state.bucket.progress if state.bucket else None)
    best, loss, epoch = state.best, state.loss, 0
    if record is not None and record.best_metric is not None:
        best = format_number(record.best_metric)
    if record is not None and record.loss is not None:
        loss = format_number(record.loss)
    if told:
        epoch = int(told.progress.fields.get("epoch") or 0)
    if state.succeeded:
        epoch = state.epochs_trained
    beside = told is not None and position != view.position and state.attempt > 0
    entry: dict[str, Any] = {
        "name": state.instance.stage.name,
        "seed": state.instance.seed,
        "phase": step.phase_of(position).value,
        "attempt": state.attempt,
        "epoch": epoch,
        "epochs": state.instance.stage.epochs,
        "loss": loss,
        "best": best,
        "checkpoint": _checkpoint_uri(view, position, state),
        "progress": _told_beside(told, state) if told and beside else None,
        "startTime": state.start_time,
        "completionTime": state.completion_time,
        "book": {
            "endedAttempt": state.ended,
            "created": state.created,
            **({"attemptTime": state.attempt_time} if state.attempt_time else {}),
            **state.streak.to_book(),
        }
        if state.attempt > 0
        else None,
    }
    return {key: value for key, value in entry.items() if value not in (None, "")}


def _told_beside(told: InstanceView, state: InstanceState) -> dict[str, Any]:
    return told.progress.fields if state.active else without_live_fields(told.progress.fields)


def _checkpoint_uri(view: RunView, position: int, state: InstanceState) -> str:
    if position in view.told:
        unread = state.checkpoint_uri if state.bucket is None or state.lost_step else ""
        return str(view.told[position].checkpoint.get("uri") or unread)
    found = state.checkpoint
    keys = instance_keys(view.run, state.instance)
    if found is None or view.profile is None or not found.prefix.startswith(keys.prefix) or ".." in found.prefix:
        return state.checkpoint_uri
    return view.profile.uri(found.prefix)


def _seed_statistics(view: RunView, step: Step) -> list[dict[str, Any]]:
    found = []
    for stage in view.run.stages:
        if len(stage.seeds) < 2:
            continue
        entries = [
            _instance_entry(view, step, i)
            for i, s in enumerate(step.states)
            if s.instance.stage.name == stage.name and s.succeeded
        ]
        values = [float(entry["best"]) for entry in entries if "best" in entry]
        if values:
            found.append(_statistics(stage.name, values))
    return found


def _statistics(stage: str, values: list[float]) -> dict[str, Any]:
    mean = format_number(statistics.fmean(values))
    if len(values) < 2:
        return {"stage": stage, "seeds": len(values), "mean": mean, "text": mean}
    std = format_number(statistics.stdev(values))
    return {"stage": stage, "seeds": len(values), "mean": mean, "std": std, "text": f"{mean} ± {std}"}


def _datasets(view: RunView, step: Step) -> list[dict[str, str]]:
    if not any(state.attempt for state in step.states):
        return []  # nothing is pinned before the first attempt
    sources = view.datasets.sources.values()
    entries = [{"name": s.name, "digest": s.digest, "manifestSha256": s.manifest_sha256} for s in sources]
    return [{key: value for key, value in entry.items() if value} for entry in entries]


def _resumed_from(view: RunView, state: InstanceState) -> str | None:
    record = view.progress.record
    if record is not None and record.attempt == state.attempt and record.resumed_from_step is not None:
        return f"step {record.resumed_from_step}"
    before = view.observed.previous.get("stage") or {}
    same = (before.get("name"), before.get("seed")) == (state.instance.stage.name, state.instance.seed)
    return view.observed.previous.get("resumedFrom") if same else None


def _pods(view: RunView, pods: tuple[ObservedPod, ...]) -> dict[str, Any]:
    desired = view.run.nodes * len(view.positions)
    ready = sum(1 for p in pods if p.ready and p.phase == "Running")
    return {"desired": desired, "ready": ready, "text": f"{ready}/{desired}"}
