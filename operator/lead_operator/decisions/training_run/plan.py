"""The state machine of a TrainingRun: spec and observation to the next step. Pure; called at every pass.

    no attempt ──(caches ready, store readable)──> start attempt 1 ──> pods ──> final checkpoint ──> next instance
                                                        ^                │
                                                        └── pause <── failed: all pods of the attempt gone or lost

Stage instances whose parents are done go this way one after another, or side by side up to `parallelism`. An attempt
is claimed in status first (compare-and-swap), then its pods are made; an attempt that ended is accounted for once
(`endedAttempt`). A crash between any two actions leaves a state from which the same decision follows.
"""

from dataclasses import replace
from datetime import timedelta

from lead_operator.decisions.conditions import FINISHING, PODS_LOAD, RESIZING
from lead_operator.decisions.events import caches_lost, run_events
from lead_operator.decisions.failure_policy import NO_VALID_CHECKPOINT, Failure, explain_lost_result, with_failure
from lead_operator.decisions.formatting import format_time, seconds_since
from lead_operator.decisions.observed import ObservedRun
from lead_operator.decisions.plan import SOON_S, Plan, earliest, once_each, remove
from lead_operator.decisions.policy_check import NOT_ALLOWED
from lead_operator.decisions.remedies import OBJECTS_REFUSED, STORE_DENIED, correct_pods_access
from lead_operator.decisions.training_run.closed_loop import decide_closed_loop
from lead_operator.decisions.training_run.closed_loop_report import closed_loop_events, report_closed_loop
from lead_operator.decisions.training_run.config_check import next_nodes, refused_config, with_config_check
from lead_operator.decisions.training_run.end import after_end, is_over, restored_events
from lead_operator.decisions.training_run.health import (
    OLD_PODS,
    explain_pending_too_long,
    find_failure,
    find_hang,
    hang_in_s,
    lacks_final_checkpoint,
    next_pass_s,
    root_cause_wait_s,
    waits_since_earlier,
)
from lead_operator.decisions.training_run.pod_group import (
    annotate_last_checkpoint,
    build_group_objects,
    clean_pods,
    lost_caches,
    release_claims,
    release_pods,
    retire_pods,
)
from lead_operator.decisions.training_run.progress import LOADING
from lead_operator.decisions.training_run.records import run_records
from lead_operator.decisions.training_run.restarts import apply_restart_policy
from lead_operator.decisions.training_run.state import Step, join_steps
from lead_operator.decisions.training_run.status import build_run_status, is_urgent
from lead_operator.decisions.training_run.view import SUSPEND_REQUESTED, RunView, read_run
from lead_operator.errors import SpecError
from lead_operator.names import Condition, RunPhase
from lead_operator.resources.status_format import status_json
from lead_operator.resources.training_run import TrainingRun, refuse_lost_config
from lead_operator.resources.training_run_status import AttemptFailure
from lead_operator.settings import Settings


def decide_training_run(run: TrainingRun, observed: ObservedRun, settings: Settings) -> Plan:
    """Returns the next step of a TrainingRun; the same observation always comes to the same plan."""
    previous = observed.status
    if is_over(observed):
        return after_end(run, observed, settings)
    view = read_run(run, observed, settings)
    try:
        step = next_step(view)
    except SpecError as error:
        step = _fail(view, "BadSpec", str(error))
    step = release_pods(view, with_config_check(view, step))
    status = build_run_status(view, step)
    loop = decide_closed_loop(run, observed, settings, status.stages, step.phase)  # beside training, and after it
    status = report_closed_loop(status, loop, previous, observed.now)
    driven = closed_loop_events(previous.closed_loop, status.closed_loop)
    ended = step.phase in (RunPhase.SUCCEEDED, RunPhase.FAILED)
    following = after_end(run, replace(observed, previous=status_json(status)), settings) if ended else step
    return Plan(
        status=status_json(status),
        records=run_records(view, step, status),
        claim_attempt=step.claim or loop.claim,
        deletes=once_each(*step.deletes, *loop.deletes),
        claim_deletes=step.claim_deletes,
        creates=step.creates,
        tries=(*step.tries, *loop.tries),
        annotates=step.annotates,
        events=(*run_events(previous, status), *driven, *caches_lost(step.claim_deletes), *restored_events(observed)),
        requeue_after_s=earliest(following.requeue_after_s, loop.wake_s),
        urgent=is_urgent(previous, status),
    )


def next_step(view: RunView) -> Step:
    """Returns what to do next for a run that has not ended."""
    run, ended = view.run, view.observed.ended
    if ended is not None:  # the status that reported it was erased, or was not written yet
        return _fail(view, ended.reason, ended.message) if ended.phase == "Failed" else _succeed(view)
    if view.all_done:
        return _succeed(view)
    if view.datasets.hopeless and view.current.attempt == 0:
        return _fail(view, view.datasets.finding.reason, view.datasets.finding.message)
    if (refused := refused_config(view)) is not None:
        return _fail(view, refused.reason, refused.message)
    if not any(state.attempt for state in view.states):
        refuse_lost_config(run)
    if run.suspend:
        return _suspend(view)
    left_s = _active_deadline_s(view)
    if left_s is not None and left_s <= 0:
        text = f"active for {run.active_deadline_s} s (activeDeadlineSeconds); its checkpoints stay"
        return _fail(view, "DeadlineExceeded", text)
    step = _step_all(view)
    return step if left_s is None else step.wake(left_s)


def _active_deadline_s(view: RunView) -> float | None:
    """Seconds left of activeDeadlineSeconds; None where it is not set, or nothing is left to train."""
    limit_s, active_s = view.run.active_deadline_s, seconds_since(view.start_time, view.observed.now)
    if limit_s is None or active_s is None or all(s.succeeded or s.final_committed for s in view.states):
        return None
    return limit_s - active_s


def _step_all(view: RunView) -> Step:
    """One step of each instance that is trained now; each sees what the one before it has changed."""
    step: Step | None = None
    phases: dict[int, RunPhase] = {}
    for position in view.positions:
        seen = view if step is None else view.after(step, position)
        following = _watch(seen) if seen.current.active else _begin(seen)
        if following.phase is RunPhase.FAILED:
            return following
        phases[position] = following.phase
        step = following if step is None else join_steps(step, following)
    assert step is not None
    return replace(step, phases=phases)


# --- an attempt is claimed and has not ended -------------------------------------------------------------------------


def _watch(view: RunView) -> Step:
    if not view.current.nodes_known and view.current.bucket is not None and (nodes := next_nodes(view)) is not None:
        view = replace(view, states=view.states_with(replace(view.current, nodes=nodes, nodes_known=True)))
    now, pods = view.observed.now, view.current.attempt_pods
    failure = find_failure(view)
    if failure is not None and view.observed.accounts_unknown:
        return _blocked(view) or _going_on(view)
    if failure is not None:
        wait_s = root_cause_wait_s(failure, view)
        return _going_on(view).wake(wait_s) if wait_s > 0 else _account(view, failure)
    if len(pods) == view.current.nodes and all(p.phase == "Succeeded" for p in pods):
        return _await_final_checkpoint(view)
    if _is_to_be_resized(view):
        return _resize(view)
    if late := explain_pending_too_long(view):
        return _fail(view, "PendingDeadlineExceeded", late)
    if (hang := find_hang(view)) is not None:
        return _account(view, hang)
    step = _going_on(view)
    for pod in pods:  # next pass when a node that is not ready now would count as lost
        if not pod.node_ready and pod.node_not_ready_since is not None:
            away_s = (now - pod.node_not_ready_since) / timedelta(seconds=1)
            step = step.wake(view.run.failure_policy.node_loss_s - away_s)
    return step


def _await_final_checkpoint(view: RunView) -> Step:
    if lacks_final_checkpoint(view):
        return _account(view, explain_lost_result(view.current.attempt_pods[0].name))
    return replace(_going_on(view).wake(SOON_S), phase=RunPhase.RUNNING, reason=FINISHING)


def _going_on(view: RunView) -> Step:
    """The attempt lives: make what is missing, stop what is not its own, wait."""
    state, run = view.current, view.run
    orphans = tuple(p for p in view.blocking_pods if p not in state.attempt_pods)
    fields = view.progress.fields
    up = len(state.attempt_pods) == state.nodes and all(p.ready or p.phase == "Succeeded" for p in state.attempt_pods)
    training = fields.attempt == state.attempt and fields.phase not in ("", *LOADING)
    if up and training:
        phase, reason = RunPhase.RUNNING, fields.phase
    elif state.final_committed or (training and fields.epoch >= state.instance.stage.epochs):
        phase, reason = RunPhase.RUNNING, FINISHING  # its pods end one after another, and nothing starts again
    else:
        phase = RunPhase.RECOVERING if state.recovering else RunPhase.STARTING
        waiting = next((p.waiting_reason for p in state.attempt_pods if p.waiting_reason), "")
        refused = OBJECTS_REFUSED if view.observed.apply_error else ""
        reason = refused or waiting[:64] or _restart_reason(view, PODS_LOAD if up else "PodsStarting")
    step = replace(
        view.step(phase, reason),
        deletes=once_each(*retire_pods(orphans, run, view.observed), *release_claims(view)),
        claim_deletes=lost_caches(view),
        creates=() if view.observed.accounts_unknown else build_group_objects(view, state),
        annotates=annotate_last_checkpoint(view, state),
        requeue_after_s=_next_pass_s(view, phase),
    )
    waited_s = seconds_since(state.attempt_time, view.observed.now)
    if run.pending_deadline_s is not None and waited_s is not None and waited_s < run.pending_deadline_s:
        return step.wake(run.pending_deadline_s - waited_s)
    return step


def _next_pass_s(view: RunView, phase: RunPhase) -> float:
    """Seconds until there may be news without an event: a report in the bucket, or none for too long."""
    if phase is not RunPhase.RUNNING:
        return view.settings.progress_s
    reading_s, hang_s = view.observed.next_reading_s or view.settings.progress_s, hang_in_s(view)
    return reading_s if hang_s is None else max(SOON_S, min(reading_s, hang_s))


# --- no attempt lives ------------------------------------------------------------------------------------------------


def _begin(view: RunView) -> Step:
    """Stops what is left of earlier attempts, waits for what is missing, then claims the next attempt."""
    nodes = next_nodes(view)
    if view.awaited(view.blocking_pods):
        waiting = view.step(_restart_phase(view), _restart_reason(view, OLD_PODS))
        if view.current.attempt and not view.current.recovering and nodes not in (None, view.current.nodes):
            waiting = view.step(RunPhase.CHECKPOINTING, RESIZING)
        deletes = retire_pods(view.blocking_pods, view.run, view.observed)
        return replace(waiting, deletes=deletes, requeue_after_s=next_pass_s(view))
    if (blocked := _blocked(view)) is not None:
        return blocked
    if view.current.lost_step and view.run.checkpoint.resume != "Never":
        return _fail(view, NO_VALID_CHECKPOINT, _explain_lost_checkpoint(view.current.lost_step))
    backoff = view.current.backoff
    if view.current.recovering:
        # A moment that is to come counts as one that is over as long: nobody waits for it.
        left_s = backoff.pause_s - abs(seconds_since(backoff.failed_at, view.observed.now) or 0.0)
        if left_s > 0:
            waiting = view.step(RunPhase.RECOVERING, backoff.reason)
            return replace(waiting, requeue_after_s=left_s)
    if nodes is None:
        waiting = view.step(_restart_phase(view), "CheckingNodes")
        return replace(waiting, blocked=True, requeue_after_s=view.settings.progress_s)
    return _claim(view, nodes)


def _explain_lost_checkpoint(step: int) -> str:
    return (
        f"the checkpoint of step {step} was committed, but no manifest of the stage is left in the object store, and "
        "nothing begins at step 0 unasked; restore the run's folder and create a run that names it in checkpoint.from, "
        "or create one that starts from the beginning"
    )


def _claim(view: RunView, nodes: int) -> Step:
    state, now = view.current, format_time(view.observed.now)
    claimed = replace(
        state,
        attempt=state.attempt + 1,
        ended=state.attempt,
        created=False,
        nodes=nodes,
        nodes_known=True,
        attempt_time=state.attempt_time if waits_since_earlier(state) else now,
        start_time=state.start_time or now,
    )
    old = tuple(p for p in state.pods if p.terminal and not p.deleting and p.attempt < state.attempt)
    keep_old = view.run.clean_pod_policy == "None"
    deletes = () if keep_old else tuple(remove(pod) for pod in old)
    return replace(
        view.step(_restart_phase(view), "PodsStarting"),
        states=view.states_with(claimed),
        start_time=view.start_time or now,
        deletes=once_each(*deletes, *release_claims(view)),
        creates=build_group_objects(view, claimed),
        claim=True,
        requeue_after_s=view.settings.progress_s,
    )


def _blocked(view: RunView) -> Step | None:
    observed = view.observed
    phase = RunPhase.PENDING if view.current.attempt == 0 else _restart_phase(view)
    reason = ""
    if view.refused_by_policy:
        reason = NOT_ALLOWED
    elif observed.profile_error or view.profile is None:
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
    return replace(view.step(phase, reason), blocked=True, requeue_after_s=view.settings.progress_s)


def _restart_phase(view: RunView) -> RunPhase:
    return RunPhase.RECOVERING if view.current.recovering else RunPhase.STARTING


def _restart_reason(view: RunView, otherwise: str) -> str:
    return view.current.backoff.reason or otherwise if view.current.recovering else otherwise


# --- ends ------------------------------------------------------------------------------------------------------------


def _account(view: RunView, failure: Failure) -> Step:
    """Records a failure once; the next attempt follows in the same step where nothing is left to wait for.

    After the final checkpoint nothing is left to fail: what still runs is stopped, and the instance is done.
    """
    if view.current.final_committed:
        deletes = retire_pods(view.blocking_pods, view.run, view.observed)
        step = replace(view.step(RunPhase.RUNNING, FINISHING), deletes=deletes)
        return replace(step, requeue_after_s=next_pass_s(view))
    state, now = view.current, format_time(view.observed.now)
    decision = apply_restart_policy(
        view.restarts, state.backoff, failure, view.run.failure_policy, view.checkpoint_step
    )
    backoff = replace(decision.backoff, failed_attempt=state.attempt, failed_at=now, reason=failure.reason)
    counted = replace(
        view,
        states=view.states_with(replace(state, ended=state.attempt, backoff=backoff)),
        restarts=decision.restarts,
        last_failure=_last_failure(view, failure, again=not decision.give_up),
    )
    if decision.give_up:
        return _fail(counted, decision.give_up, f"{decision.message}{_store_remedy(view, decision.give_up)}")
    step = _begin(counted)
    return replace(step, claim=step.claim or bool(step.deletes))  # before its pods go: that is no second failure


def _is_to_be_resized(view: RunView) -> bool:
    state = view.current
    return state.nodes_known and not state.final_committed and next_nodes(view) not in (None, state.nodes)


def _resize(view: RunView) -> Step:
    """Ends the attempt, whose pods commit a checkpoint; no failure, and the next one has as many pods as it should."""
    step = _begin(replace(view, states=view.states_with(replace(view.current, ended=view.current.attempt))))
    return replace(step, claim=step.claim or bool(step.deletes))  # before its pods go: that is no failure either


def _store_remedy(view: RunView, reason: str) -> str:
    if reason != STORE_DENIED:
        return ""
    profile = view.settings.storage_profiles.get(view.run.storage_profile)
    return f"; {correct_pods_access(profile, view.run.identity.namespace, build=False)}; then recreate the run"


def _last_failure(view: RunView, failure: Failure, *, again: bool) -> AttemptFailure:
    """`again`: the run goes on, so that the remedy is for the next time."""
    state = view.current
    remedy = f"; {'if it happens again, ' if again else ''}{failure.remedy}" if failure.remedy else ""
    whose = AttemptFailure(stage=state.instance.stage.name, seed=state.instance.seed, attempt=state.attempt)
    return with_failure(whose, failure, f"{failure.message}{remedy}", view.observed.now)


def _suspend(view: RunView) -> Step:
    ended, deletes = view.states_ended, retire_pods(view.live_pods, view.run, view.observed)
    awaited = view.awaited(view.live_pods)
    step = replace(view.step(RunPhase.SUSPENDED, "Suspended"), states=ended, deletes=deletes)
    if not awaited:
        return step
    step = replace(step, requeue_after_s=next_pass_s(view))
    # One that was waited for no longer, and whose node is away since, is none that has to commit a checkpoint.
    if view.observed.status.holds(Condition.SUSPENDED) and all(pod.deleting for pod in awaited):
        return step
    # Its end is recorded before its pods are deleted: a run that is resumed meanwhile begins a new attempt, never this
    # again.
    return replace(step, phase=RunPhase.CHECKPOINTING, reason=SUSPEND_REQUESTED, claim=ended != view.states)


def _succeed(view: RunView) -> Step:
    step = view.step(RunPhase.SUCCEEDED, "AllStagesDone")
    return replace(step, deletes=clean_pods(view.run, view.observed))


def _fail(view: RunView, reason: str, message: str) -> Step:
    states = tuple(
        replace(s, result="Failed") if i in view.positions and (s.attempt > 0 or i == view.position) else s
        for i, s in enumerate(view.states_ended)
    )
    deletes = clean_pods(view.run, view.observed)
    # The decision is written before the pods go that it rests on: without them, another would follow.
    return replace(
        view.step(RunPhase.FAILED, reason), states=states, message=message, deletes=deletes, claim=bool(deletes)
    )
