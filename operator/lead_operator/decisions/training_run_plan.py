"""The state machine of a TrainingRun: what was asked, what is seen, what comes next. Pure; called at every look.

    no attempt ──(caches ready, store readable)──> claim attempt 1 ──> pods ──> final checkpoint ──> next instance
                                                        ^                │
                                                        └── pause <── failed: all pods of the attempt gone or lost

Stage instances whose parents are done go this way one after another, or side by side up to `parallelism`. An attempt
is claimed in status first (compare-and-swap), then its pods are made; an attempt that ended is accounted for once
(`endedAttempt`). A crash between any two actions leaves a state from which the same decision follows.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from lead_operator import names
from lead_operator.decisions.conditions import condition_holds
from lead_operator.decisions.events import run_events
from lead_operator.decisions.failure_policy import (
    TELLING_WAIT_S,
    Failure,
    explain_hang,
    explain_lost_result,
    explain_missing,
    explain_pod,
    heaviest,
    is_telling,
)
from lead_operator.decisions.figures import format_time, parse_time, seconds_since
from lead_operator.decisions.instance_state import InstanceState
from lead_operator.decisions.observed import ObservedPod, ObservedRun
from lead_operator.decisions.plan import Plan, PodToDelete
from lead_operator.decisions.pod_group import build_group_objects, clean_pods, retire_pods, tell_last_checkpoint
from lead_operator.decisions.refusals import OBJECTS_REFUSED, explain_refusal
from lead_operator.decisions.restarts import judge_failure
from lead_operator.decisions.run_status import build_run_status, is_urgent
from lead_operator.decisions.run_step import Step, join_steps
from lead_operator.decisions.run_view import SUSPEND_REQUESTED, RunView, look_at_run
from lead_operator.errors import SpecError
from lead_operator.names import Condition, RunPhase
from lead_operator.resources.training_run import TrainingRun
from lead_operator.settings import Settings

FINAL_CHECKPOINT_WAIT_S = 60.0  # the bucket is read less often than the pods
SOON_S = 1.0


def decide_training_run(run: TrainingRun, observed: ObservedRun, settings: Settings) -> Plan:
    """Returns the next step of a TrainingRun; the same observation always comes to the same plan."""
    previous = observed.previous
    if condition_holds(previous, Condition.SUCCEEDED) or condition_holds(previous, Condition.FAILED):
        return _after_end(run, observed)
    view = look_at_run(run, observed, settings)
    try:
        step = next_step(view)
    except SpecError as error:
        step = _fail(view, "BadSpec", str(error))
    status = build_run_status(view, step)
    return Plan(
        status=status,
        claim_attempt=step.claim,
        deletes=step.deletes,
        creates=step.creates,
        annotates=step.annotates,
        events=run_events(previous, status),
        requeue_after_s=_after_end(run, replace(observed, previous=status)).requeue_after_s
        if step.phase in (RunPhase.SUCCEEDED, RunPhase.FAILED)
        else step.requeue_after_s,
        urgent=is_urgent(previous, status),
    )


def _after_end(run: TrainingRun, observed: ObservedRun) -> Plan:
    """A run that has ended keeps its status; what is left of its pods goes, and after its time the run itself."""
    status = {**observed.previous, "observedGeneration": run.identity.generation}
    deletes = clean_pods(run, observed)
    requeue_s = SOON_S * 10 if deletes else None
    ended_s = seconds_since(status.get("completionTime"), observed.now)
    if run.ttl_after_finished_s is None or ended_s is None:
        return Plan(status=status, deletes=deletes, requeue_after_s=requeue_s)
    left_s = run.ttl_after_finished_s - ended_s
    if left_s <= 0:
        return Plan(status=status, deletes=deletes, delete_self=True)
    return Plan(status=status, deletes=deletes, requeue_after_s=min(left_s, requeue_s or left_s))


def next_step(view: RunView) -> Step:
    """Returns what to do next for a run that has not ended."""
    run, now = view.run, view.observed.now
    if view.all_done:
        return _succeed(view)
    if view.datasets.hopeless and view.current.attempt == 0:
        return _fail(view, view.datasets.finding.reason, view.datasets.finding.message)
    if run.suspend:
        return _suspend(view)
    active_s = seconds_since(view.start_time, now)
    if run.active_deadline_s is not None and active_s is not None and active_s >= run.active_deadline_s:
        text = f"active for {run.active_deadline_s} s (activeDeadlineSeconds); its checkpoints stay"
        return _fail(view, "DeadlineExceeded", text)
    step = _step_all(view)
    if run.active_deadline_s is not None and active_s is not None:
        return _wake(step, run.active_deadline_s - active_s)
    return step


def _step_all(view: RunView) -> Step:
    """One step of each instance that is trained now; each sees what the one before it has changed."""
    step: Step | None = None
    for position in view.positions:
        seen = view if step is None else view.after(step, position)
        following = _watch(seen) if seen.current.active else _begin(seen)
        if following.phase is RunPhase.FAILED:
            return following
        step = following if step is None else join_steps(step, following)
    assert step is not None
    return step


# --- an attempt is claimed and has not ended -------------------------------------------------------------------------


def _watch(view: RunView) -> Step:
    state, now = view.current, view.observed.now
    pods = state.attempt_pods
    failures = _failures(view)
    failure = heaviest(failures)
    if failure is not None:
        wait_s = _telling_wait_s(failure, pods, view)
        if wait_s > 0:
            return _wake(_going_on(view), wait_s)
        return _account(view, failure)
    if len(pods) == view.run.nodes and all(p.phase == "Succeeded" for p in pods):
        return _await_final_checkpoint(view)
    if (late := _pending_too_long(view)) is not None:
        return late
    running = len(pods) == view.run.nodes and all(p.phase == "Running" for p in pods)
    if running and not view.observed.store_error:
        idle_s = _idle_s(view, pods)
        limit_s = view.run.failure_policy.hang_timeout_s
        if idle_s is not None and idle_s >= limit_s:
            return _account(view, explain_hang(pods[0].name, limit_s))
    step = _going_on(view)
    for pod in pods:  # look again when a node that is away now would count as lost
        if not pod.node_ready and pod.node_not_ready_since is not None:
            away_s = (now - pod.node_not_ready_since) / timedelta(seconds=1)
            step = _wake(step, view.run.failure_policy.node_loss_s - away_s)
    return step


def _failures(view: RunView) -> list[Failure]:
    state, now = view.current, view.observed.now
    loss_s = view.run.failure_policy.node_loss_s
    explained = (explain_pod(pod, now=now, node_loss_s=loss_s) for pod in state.attempt_pods)
    failures = [failure for failure in explained if failure is not None]
    if state.created:
        seen = {p.rank for p in state.attempt_pods}
        stage, seed = state.instance.stage.name, state.instance.seed
        for rank in sorted(set(range(view.run.nodes)) - seen):
            name = names.training_pod_name(view.run.identity.name, stage, seed, state.attempt, rank)
            failures.append(explain_missing(name))
    return failures


def _telling_wait_s(failure: Failure, pods: tuple[ObservedPod, ...], view: RunView) -> float:
    if is_telling(failure) or all(p.terminal for p in pods):
        return 0.0
    ends = [p.finished_at for p in pods if p.terminal and p.finished_at is not None]
    if not ends:
        return 0.0
    return TELLING_WAIT_S - (view.observed.now - min(ends)) / timedelta(seconds=1)


def _await_final_checkpoint(view: RunView) -> Step:
    pods = view.current.attempt_pods
    ends = [p.finished_at for p in pods if p.finished_at is not None]
    since_s = (view.observed.now - max(ends)) / timedelta(seconds=1) if ends else 0.0
    if not view.observed.store_error and since_s >= FINAL_CHECKPOINT_WAIT_S:
        return _account(view, explain_lost_result(pods[0].name))
    return replace(_wake(_going_on(view), SOON_S), phase=RunPhase.RUNNING, reason="Finishing")


def _pending_too_long(view: RunView) -> Step | None:
    limit_s, waited_s = view.run.pending_deadline_s, seconds_since(view.current.attempt_time, view.observed.now)
    pods = view.current.attempt_pods
    pending = len(pods) < view.run.nodes or any(p.phase == "Pending" for p in pods)
    if limit_s is None or waited_s is None or not pending or waited_s < limit_s:
        return None
    waiting = next((p for p in pods if p.waiting_reason), None)
    why = f"; {waiting.name}: {waiting.waiting_reason}: {waiting.waiting_message}" if waiting else ""
    if view.observed.apply_error:
        why = f"; {explain_refusal(view.observed.apply_error)}"
    return _fail(view, "PendingDeadlineExceeded", f"not all pods ran within {limit_s} s (pendingDeadlineSeconds){why}")


def _idle_s(view: RunView, pods: tuple[ObservedPod, ...]) -> float | None:
    """Seconds since training advanced, or since the last pod started where it has not begun to report."""
    now, fields = view.observed.now, view.progress.fields
    started = [p.started_at for p in pods if p.started_at is not None]
    since = max(started) if started else parse_time(view.current.attempt_time)
    advanced = parse_time(fields.get("advancedAt")) if fields.get("attempt") == view.current.attempt else None
    moments = [m for m in (since, advanced) if m is not None]
    return (now - max(moments)) / timedelta(seconds=1) if moments else None


def _going_on(view: RunView) -> Step:
    """The attempt lives: make what is missing, stop what is not its own, wait."""
    state, run = view.current, view.run
    strays = tuple(p for p in view.pods_in_the_way if p not in state.attempt_pods)
    fields = view.progress.fields
    up = len(state.attempt_pods) == run.nodes and all(p.ready or p.phase == "Succeeded" for p in state.attempt_pods)
    training = fields.get("attempt") == state.attempt and fields.get("phase") not in (None, "Starting", "Loading")
    if up and training:
        phase, reason = RunPhase.RUNNING, str(fields["phase"])
    else:
        phase = RunPhase.RECOVERING if state.recovering else RunPhase.STARTING
        waiting = next((p.waiting_reason for p in state.attempt_pods if p.waiting_reason), "")
        refused = OBJECTS_REFUSED if view.observed.apply_error else ""
        reason = refused or waiting[:64] or _restart_reason(view, "Loading" if up else "PodsStarting")
    step = replace(
        _unchanged(view, phase, reason),
        deletes=retire_pods(strays, run, view.observed),
        creates=build_group_objects(view, state),
        annotates=tell_last_checkpoint(view, state),
        requeue_after_s=view.settings.progress_s,
    )
    waited_s = seconds_since(state.attempt_time, view.observed.now)
    if run.pending_deadline_s is not None and waited_s is not None and waited_s < run.pending_deadline_s:
        return _wake(step, run.pending_deadline_s - waited_s)
    return step


# --- no attempt lives ------------------------------------------------------------------------------------------------


def _begin(view: RunView) -> Step:
    """Stops what is left of earlier attempts, waits for what is missing, then claims the next attempt."""
    if view.pods_in_the_way:
        waiting = _unchanged(view, _restart_phase(view), _restart_reason(view, "WaitingForOldPods"))
        deletes = retire_pods(view.pods_in_the_way, view.run, view.observed)
        return replace(waiting, deletes=deletes, requeue_after_s=_next_loss_s(view))
    if (blocked := _blocked(view)) is not None:
        return blocked
    streak = view.current.streak
    if view.current.recovering:
        left_s = streak.pause_s - (seconds_since(streak.failed_at, view.observed.now) or 0.0)
        if left_s > 0:
            waiting = _unchanged(view, RunPhase.RECOVERING, streak.reason)
            return replace(waiting, requeue_after_s=left_s)
    return _claim(view)


def _claim(view: RunView) -> Step:
    state, now = view.current, format_time(view.observed.now)
    claimed = replace(
        state,
        phase="Running",
        attempt=state.attempt + 1,
        ended=state.attempt,
        created=False,
        attempt_time=now,
        start_time=state.start_time or now,
    )
    old = tuple(p for p in state.pods if p.terminal and not p.deleting and p.attempt < state.attempt)
    keep_old = view.run.clean_pod_policy == "None"
    return replace(
        _unchanged(view, _restart_phase(view), "PodsStarting"),
        states=_replaced(view, claimed),
        start_time=view.start_time or now,
        deletes=() if keep_old else tuple(PodToDelete(p.name, p.uid) for p in old),
        creates=build_group_objects(view, claimed),
        claim=True,
        requeue_after_s=view.settings.progress_s,
    )


def _blocked(view: RunView) -> Step | None:
    observed = view.observed
    phase = RunPhase.PENDING if view.current.attempt == 0 else _restart_phase(view)
    reason = ""
    if observed.profile_error or view.profile is None:
        reason = "UnknownStorageProfile"
    elif view.config_hash != view.started_hash:
        reason = "ConfigChanged"
    elif not view.datasets.finding.holds:
        reason = view.datasets.finding.reason
        phase = RunPhase.CACHING if view.datasets.building else phase
    elif observed.store_error:
        reason = "StorageUnavailable"
    if not reason:
        return None
    return replace(_unchanged(view, phase, reason), requeue_after_s=view.settings.progress_s)


def _restart_phase(view: RunView) -> RunPhase:
    return RunPhase.RECOVERING if view.current.recovering else RunPhase.STARTING


def _restart_reason(view: RunView, otherwise: str) -> str:
    return view.current.streak.reason or otherwise if view.current.recovering else otherwise


def _next_loss_s(view: RunView) -> float:
    """Seconds until a pod that does not go away counts as lost with its node; the resync period otherwise."""
    limit = timedelta(seconds=view.run.failure_policy.node_loss_s)
    away = [p.node_not_ready_since for p in view.live_pods if not p.node_ready and p.node_not_ready_since]
    left = [(since + limit - view.observed.now) / timedelta(seconds=1) for since in away]
    return max(SOON_S, min([*left, view.settings.progress_s]))


# --- ends ------------------------------------------------------------------------------------------------------------


def _account(view: RunView, failure: Failure) -> Step:
    """Books a failure once; the next attempt follows in the same step where nothing is left to wait for."""
    state, now = view.current, format_time(view.observed.now)
    verdict = judge_failure(view.restarts, state.streak, failure, view.run.failure_policy, view.checkpoint_step)
    streak = replace(verdict.streak, failed_attempt=state.attempt, failed_at=now, reason=failure.reason)
    booked = replace(
        view,
        states=_replaced(view, replace(state, ended=state.attempt, streak=streak)),
        restarts=verdict.restarts,
        last_failure=_failure_fields(view, failure),
    )
    if verdict.give_up:
        return _fail(booked, verdict.give_up, verdict.message)
    step = _begin(booked)
    return replace(step, claim=step.claim or bool(step.deletes))  # before its pods go: that is no second failure


def _failure_fields(view: RunView, failure: Failure) -> dict[str, Any]:
    state = view.current
    fields: dict[str, Any] = {
        "time": format_time(view.observed.now),
        "stage": state.instance.stage.name,
        "seed": state.instance.seed,
        "attempt": state.attempt,
        "pod": failure.pod,
        "node": failure.node,
        "class": failure.exit_class.value,
        "reason": failure.reason,
        "message": failure.message,
    }
    if failure.exit_code is not None:
        fields["exitCode"] = failure.exit_code
    return {key: value for key, value in fields.items() if value != ""}


def _suspend(view: RunView) -> Step:
    ended = _ended(view)
    if view.live_pods:
        step = _unchanged(view, RunPhase.CHECKPOINTING, SUSPEND_REQUESTED)
        deletes = retire_pods(view.live_pods, view.run, view.observed)
        # Its end is booked before its pods go: a run that is resumed meanwhile begins a new attempt, never this again.
        first = ended != view.states
        return replace(step, states=ended, deletes=deletes, claim=first, requeue_after_s=_next_loss_s(view))
    return replace(_unchanged(view, RunPhase.SUSPENDED, "Suspended"), states=ended)


def _succeed(view: RunView) -> Step:
    step = _unchanged(view, RunPhase.SUCCEEDED, "AllStagesDone")
    return replace(step, deletes=clean_pods(view.run, view.observed))


def _fail(view: RunView, reason: str, message: str) -> Step:
    states = tuple(
        replace(s, phase="Failed") if i in view.positions and (s.attempt > 0 or i == view.position) else s
        for i, s in enumerate(_ended(view))
    )
    return replace(
        _unchanged(view, RunPhase.FAILED, reason),
        states=states,
        message=message,
        deletes=clean_pods(view.run, view.observed),
    )


def _unchanged(view: RunView, phase: RunPhase, reason: str) -> Step:
    return Step(
        phase=phase,
        reason=reason[:64],
        states=view.states,
        restarts=view.restarts,
        last_failure=view.last_failure,
        start_time=view.start_time,
    )


def _replaced(view: RunView, state: InstanceState) -> tuple[InstanceState, ...]:
    return tuple(state if i == view.position else s for i, s in enumerate(view.states))


def _ended(view: RunView) -> tuple[InstanceState, ...]:
    """The states with every attempt that lives now ended."""
    return tuple(replace(s, ended=s.attempt) if i in view.positions else s for i, s in enumerate(view.states))


def _wake(step: Step, after_s: float) -> Step:
    after_s = max(SOON_S, after_s)
    if step.requeue_after_s is not None and step.requeue_after_s <= after_s:
        return step
    return replace(step, requeue_after_s=after_s)
