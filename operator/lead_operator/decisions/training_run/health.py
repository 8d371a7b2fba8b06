"""What is wrong with an attempt: a failure, a hang, a wait that is too long. Pure.

Called by `plan`, which turns the results into steps. A time from a node's clock is never taken for earlier
than the attempt's claim, and a clock that is ahead never holds a verdict back for long.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from lead_operator import names
from lead_operator.decisions.failure_policy import (
    ROOT_CAUSE_WAIT_S,
    Failure,
    explain_hang,
    explain_missing,
    explain_outdated,
    explain_pod,
    fatal_if_listed,
    heaviest,
    is_root_cause,
)
from lead_operator.decisions.formatting import parse_time, seconds_since, shorten
from lead_operator.decisions.observed import STAYS_S
from lead_operator.decisions.plan import SOON_S
from lead_operator.decisions.remedies import explain_refusal, what_it_waits_for
from lead_operator.decisions.training_run.progress import LOADING
from lead_operator.decisions.training_run.restarts import NO_CHECKPOINT
from lead_operator.decisions.training_run.state import InstanceState
from lead_operator.decisions.training_run.view import RunView
from lead_operator.names import Condition
from lead_operator.resources.status_format import MAX_MESSAGE
from lead_protocol.exit_codes import ExitClass, ExitCode

GROUP_INCOMPLETE, OLD_PODS = "GroupIncomplete", "WaitingForOldPods"
FINAL_CHECKPOINT_WAIT_S = 60.0  # the bucket is read less often than the pods
LOADING_S = 1800.0  # an attempt before its first step: images start, caches fill, the model compiles
MAX_LAST_MESSAGE = 80


def _with_remedy_of_a_run(view: RunView, failure: Failure) -> Failure:
    """Returns a failure with a run's limit, budget, and remedy."""
    if failure.reason == "OOMKilled":
        limit = view.run.resources.limits.get("memory", "")
        text = f"pod {failure.pod} needed more memory than resources.limits.memory" + (f" ({limit})" if limit else "")
        begins = " that continues from here (checkpoint.from)" if view.checkpoint_step != NO_CHECKPOINT else ""
        remedy = f"create a run with more memory{begins}, or one with smaller batches"
        return replace(failure, message=shorten(text, MAX_MESSAGE), remedy=remedy)
    if failure.reason == "StoppedUnasked":
        text = (
            f"pod {failure.pod} was deleted or stopped by somebody, not by the operator; that counts against no budget "
            f"(status.restarts.voluntary): {failure.message}"
        )
        return replace(failure, message=shorten(text, MAX_MESSAGE))
    return failure


def find_failure(view: RunView) -> Failure | None:
    """Returns why the current attempt ended, or None while it has not; a group that never ran whole is not to blame."""
    state, now = view.current, view.observed.now
    policy = view.run.failure_policy
    explained = (
        explain_pod(pod, now=now, node_loss_s=policy.node_loss_s) or explain_outdated(pod, view.settings.pulls)
        for pod in state.attempt_pods
    )
    listed = (fatal_if_listed(failure, policy.fatal_exit_codes) for failure in explained if failure is not None)
    failures = [_with_remedy_of_a_run(view, failure) for failure in listed]
    absent = _absent(view)
    if state.created:
        there = {pod.rank for pod in state.attempt_pods}
        failures += [explain_missing(name) for rank, name in absent.items() if rank not in there]
    failure = heaviest(failures)
    if failure is None or failure.exit_code != ExitCode.LOST_PEER or not absent:
        return failure
    text = (
        f"{', '.join([*absent.values()][:3])} did not start while the other ranks waited; last error: {failure.message}"
    )
    return replace(failure, exit_class=ExitClass.STOPPED, reason=GROUP_INCOMPLETE, message=shorten(text, MAX_MESSAGE))


def waits_since_earlier(state: InstanceState) -> bool:
    """Returns whether the next attempt goes on with the wait of the last one, which never ran whole."""
    return state.recovering and state.backoff.reason == GROUP_INCOMPLETE and state.attempt_time is not None


def root_cause_wait_s(failure: Failure, view: RunView) -> float:
    """Returns how long a failure that may be a consequence waits for its root cause."""
    pods = view.current.attempt_pods
    if is_root_cause(failure) or all(pod.terminal for pod in pods):
        return 0.0
    return ROOT_CAUSE_WAIT_S - max(_ends_s_ago(view), default=ROOT_CAUSE_WAIT_S)


def lacks_final_checkpoint(view: RunView) -> bool:
    """Returns whether ranks that all ended well have left no final checkpoint for as long as it may take to be seen."""
    return not view.unreadable and min(_ends_s_ago(view), default=0.0) >= FINAL_CHECKPOINT_WAIT_S


def find_hang(view: RunView) -> Failure | None:
    """Returns the failure of a group that runs and does not advance; nothing is judged by reports that are not read."""
    left_s = hang_in_s(view)
    if left_s is None or left_s > 0:
        return None
    running = next(pod for pod in view.current.attempt_pods if pod.phase == "Running")
    return explain_hang(running, _hang_limit_s(view), _last_report(view), loads=not _has_stepped(view))


def hang_in_s(view: RunView) -> float | None:
    """Returns in how many seconds a group that runs counts as hung if it does not advance; None: unknown."""
    pods = view.current.attempt_pods
    running = [pod for pod in pods if pod.phase == "Running"]
    up = len(pods) == view.current.nodes and all(pod.phase in ("Running", "Succeeded") for pod in pods)
    readable = view.observed.status.condition(Condition.STORAGE_AVAILABLE)
    if not running or not up or view.unreadable or readable is None or readable.status != "True":
        return None  # right after a store outage, the report may still be an old one
    began, fields = _began(view.current), view.progress.fields
    started = [min(pod.started_at, view.observed.now) for pod in pods if pod.started_at is not None]
    advanced = parse_time(fields.advanced_at) if fields.attempt == view.current.attempt else None
    moments = [*started, began, advanced, parse_time(readable.last_transition_time)]
    known = [moment for moment in moments if moment is not None]
    return _hang_limit_s(view) - _seconds(view, max(known)) if known else None


def _hang_limit_s(view: RunView) -> float:
    step_s = float(view.run.failure_policy.hang_timeout_s)
    return step_s if _has_stepped(view) else max(step_s, LOADING_S)


def _has_stepped(view: RunView) -> bool:
    """Whether the current attempt has reported a step of its own: from then on hangTimeoutSeconds holds."""
    fields, record = view.progress.fields, view.progress.record
    if fields.attempt != view.current.attempt or fields.phase in LOADING:
        return False
    return record is None or record.step > (record.resumed_from_step or 0)


def _last_report(view: RunView) -> str:
    """What rank 0, the only one that reports, reported last of the current attempt, and when."""
    pod, fields = view.current.attempt_pods[0], view.progress.fields
    who = f"rank {pod.rank} (pod {pod.name} on node {pod.node})"
    if fields.attempt != view.current.attempt:
        return f"{who} has not reported yet"
    steps = f" of {fields.steps}" if fields.steps else ""
    how_far = f"epoch {fields.epoch} of {view.current.instance.stage.epochs}, step {fields.step}{steps}"
    record = view.progress.record
    message = f", {shorten(record.message, MAX_LAST_MESSAGE)}" if record is not None and record.message else ""
    return f"{who} last reported at {fields.reported_at}: {fields.phase}, {how_far}{message}"


def explain_pending_too_long(view: RunView) -> str:
    """Returns that not all pods ran within pendingDeadlineSeconds, and why; empty while there is time."""
    limit_s, waited_s = view.run.pending_deadline_s, seconds_since(view.current.attempt_time, view.observed.now)
    if limit_s is None or waited_s is None or waited_s < limit_s or not _absent(view):
        return ""
    waiting = next((p for p in view.current.attempt_pods if p.waiting_reason), None)
    why = f"; {waiting.name}: {what_it_waits_for(waiting)}" if waiting else ""
    if view.observed.apply_error:
        why = f"; {explain_refusal(view.observed.apply_error)}"
    return f"not all pods ran within {limit_s} s (pendingDeadlineSeconds){why}"


def next_pass_s(view: RunView) -> float:
    """Returns the seconds until a pod that does not go is waited for no longer; else the resync period."""
    loss, stay = timedelta(seconds=view.run.failure_policy.node_loss_s), timedelta(seconds=STAYS_S)
    pods = view.awaited(view.live_pods)
    ends = [p.node_not_ready_since + loss for p in pods if not p.node_ready and p.node_not_ready_since]
    ends += [p.grace_ends_at + stay for p in pods if p.node_ready and p.grace_ends_at]
    left = [(end - view.observed.now) / timedelta(seconds=1) for end in ends]
    return max(SOON_S, min([*left, view.settings.progress_s]))


def _absent(view: RunView) -> dict[int, str]:
    """Ranks and names of the current attempt's pods that do not exist, or have never run."""
    state, stage = view.current, view.current.instance.stage.name
    ran = {pod.rank for pod in state.attempt_pods if pod.phase != "Pending"}
    run, seed = view.run.identity.name, state.instance.seed
    ranks = [rank for rank in range(state.nodes) if rank not in ran]
    return {rank: names.training_pod_name(run, stage, seed, state.attempt, rank) for rank in ranks}


def _began(state: InstanceState) -> datetime | None:
    """When the current attempt was claimed, or shortly before; `attempt_time` may be that of an earlier one."""
    moments = [parse_time(state.attempt_time), parse_time(state.backoff.failed_at)]
    return max((moment for moment in moments if moment is not None), default=None)


def _ends_s_ago(view: RunView) -> list[float]:
    """Seconds since the current attempt's pods ended; a clock that is ahead counts as one that is behind as much."""
    began = _began(view.current)
    ends = [pod.finished_at for pod in view.current.attempt_pods if pod.terminal and pod.finished_at is not None]
    return [abs(_seconds(view, max(end, began or end))) for end in ends]


def _seconds(view: RunView, since: datetime) -> float:
    return (view.observed.now - since) / timedelta(seconds=1)
