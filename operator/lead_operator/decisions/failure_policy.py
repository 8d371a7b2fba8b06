"""Why an attempt ended, and what that asks for: restart the group, wait, or give up. Pure.

Causes that the cluster names (eviction, lost node, out of memory) come first, then the exit code of the rank that
is the root cause: when one rank fails, the others end with codes that only reflect it.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from lead_operator.decisions.formatting import format_time, shorten
from lead_operator.decisions.observed import STAYS_S, ObservedPod
from lead_operator.resources.status_format import MAX_MESSAGE, FailureStatus
from lead_protocol.exit_codes import SET_CLOCKS, ExitClass, ExitCode, classify_exit_code
from lead_protocol.progress_record import parse_build, parse_progress

AnyFailureStatus = TypeVar("AnyFailureStatus", bound=FailureStatus)
ROOT_CAUSE_WAIT_S = 10.0  # a rank that lost its peer is often seen before the peer that failed
MAX_PAUSE_S = 60.0

# Pod reasons that the kubelet and the node controller give; the program had no part in them.
_CLUSTER_REASONS = frozenset(
    [
        "Evicted",
        "NodeLost",
        "NodeShutdown",
        "Shutdown",
        "Terminated",
        "Preempting",
        "UnexpectedAdmissionError",
        "NodeAffinity",
        "ContainerStatusUnknown",
    ]
)

# Container reasons that runtimes give (containerd, CRI-O): no process of ours was started.
_START_REASONS = frozenset(["StartError", "ContainerCannotRun"])

_IMAGE_REASONS = frozenset(
    ["ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"]
)

NO_VALID_CHECKPOINT = "NoValidCheckpoint"
_REASONS: dict[int, str] = {
    ExitCode.USAGE: "BadUsage",
    ExitCode.BAD_CONFIG: "BadConfig",
    ExitCode.BAD_DATA: "BadData",
    ExitCode.NO_VALID_CHECKPOINT: NO_VALID_CHECKPOINT,
    ExitCode.NO_SUCH_RECIPE: "NoSuchRecipe",
    ExitCode.STORE_DENIED: "StoreDenied",
    ExitCode.STOPPED: "StoppedUnasked",
    ExitCode.FENCED: "Fenced",
    ExitCode.STORE_UNAVAILABLE: "StoreUnavailable",
    ExitCode.LOST_PEER: "LostPeer",
    ExitCode.STEP_TOO_LARGE: "StepTooLarge",
}

CLOCK_SKEW = "ClockSkew"
CORRECT_AND_CREATE = "; a finished run never restarts: correct the spec and create the run again"
SPEC_REASONS = frozenset({"BadUsage", "BadConfig", "NoSuchRecipe"})  # the spec itself was refused by the pod


@dataclass(frozen=True)
class Failure:
    """Why one attempt ended."""

    exit_class: ExitClass
    reason: str
    message: str
    weight: int  # the heaviest failure of a group is its root cause
    pod: str = ""
    node: str = ""
    exit_code: int | None = None
    remedy: str = ""  # what a person can do, should it come again or have ended the run


OOM_KILLED = "OOMKilled"  # reason of a container that the kernel killed for memory
_DISRUPTED, _USER, _TOO_LARGE, _PROGRAM, _NODE, _GONE, _CODE, _STOPPED, _PEER = range(9, 0, -1)


def explain_pod(pod: ObservedPod, *, now: datetime, node_loss_s: float) -> Failure | None:
    """Returns why a pod failed, or None while it has not."""
    if pod.phase == "Succeeded":
        return None
    if not pod.terminal:
        if is_lost(pod, now=now, node_loss_s=node_loss_s):
            text = (
                f"node {pod.node} of pod {pod.name} has not been ready for {node_loss_s:.0f} s "
                f"(failurePolicy.nodeLossSeconds); see kubectl describe node {pod.node}"
            )
            return _failure(pod, ExitClass.INFRASTRUCTURE, "NodeLost", _NODE, text)
        if pod.is_past_deadline(now):
            text = f"pod {pod.name} got a stop signal and still exists {STAYS_S:.0f} s after its grace period"
            return _failure(pod, ExitClass.INFRASTRUCTURE, "PodStays", _GONE, text)
        return None
    by_cluster = pod.reason in _CLUSTER_REASONS or pod.reason.startswith("OutOf")
    if cause := pod.disruption or (pod.reason if by_cluster else ""):
        # Who had the time to commit has lost nothing.
        counts = ExitClass.STOPPED if pod.exit_code == ExitCode.STOPPED else ExitClass.INFRASTRUCTURE
        return _failure(pod, counts, cause, _DISRUPTED, _message(pod))
    if pod.reason == OOM_KILLED:
        text = (
            f"pod {pod.name} needed more memory than resources.limits.memory; if it happens again, create a run "
            "with more memory that continues from here (checkpoint.from), or one with smaller batches"
        )
        return _failure(pod, ExitClass.PROGRAM_ERROR, OOM_KILLED, _PROGRAM, text)
    if pod.reason in _START_REASONS:
        text = (
            f"the container runtime of node {pod.node} could not start pod {pod.name}: {_message(pod)}; if it "
            "happens again there, check that node's runtime"
        )
        return _failure(pod, ExitClass.INFRASTRUCTURE, "ContainerNotStarted", _NODE, text)
    if pod.exit_code is None or (pod.deleting and pod.exit_code in (137, 143)):
        return _failure(pod, ExitClass.INFRASTRUCTURE, "PodDeleted", _GONE, f"pod {pod.name} was stopped from outside")
    return _by_exit_code(pod, pod.exit_code)


def explain_outdated(pod: ObservedPod, pulls: str) -> Failure | None:
    """Returns the failure of a pod that cannot pull its image while the chart's values are others since: `pulls`."""
    waits = pod.phase == "Pending" and pod.started_at is None and pod.waiting_reason in _IMAGE_REASONS
    if not waits or pod.pulls in ("", pulls):
        return None
    text = (
        f"pod {pod.name} could not start ({pod.waiting_reason}) with image, pull policy and secrets {pod.pulls}; the "
        f"chart's values are {pulls} now"
    )
    return _failure(pod, ExitClass.STOPPED, "ImageChanged", _CODE, text)


def explain_missing(name: str) -> Failure:
    """Returns the failure of a pod that was seen once and does not exist any more."""
    text = f"pod {name} was deleted by somebody or with its node"
    return Failure(ExitClass.INFRASTRUCTURE, "PodGone", text, _GONE, pod=name)


def explain_hang(pod: ObservedPod, seconds: float, last_report: str, *, loads: bool) -> Failure:
    """Returns the failure of a group that does not advance; its pods, and with them their logs, are about to go.

    `loads`: it has not made a step yet, so that the longer limit of loading has passed.
    """
    slow = "loading is" if loads else "steps are"
    text = (
        f"no {'first' if loads else 'new'} step for {seconds:.0f} s; {last_report}; if {slow} only slow, raise "
        "failurePolicy.hangTimeoutSeconds; if not, the last log lines of each rank show where it is stuck: read them "
        "where your cluster collects logs, the pods' own logs are deleted with the pods"
    )
    return Failure(ExitClass.PROGRAM_ERROR, "Hung", shorten(text, MAX_MESSAGE), _PROGRAM, pod.name, pod.node[:253])


def explain_lost_result(pod: str) -> Failure:
    """Returns the failure of a group that ended well without its final checkpoint."""
    text = "all ranks ended without an error, but the final checkpoint is not in the object store"
    return Failure(ExitClass.PROGRAM_ERROR, "FinalCheckpointMissing", text, _PROGRAM, pod=pod)


def fatal_if_listed(failure: Failure, codes: Collection[int]) -> Failure:
    """Returns a program error whose exit code is one of `codes` (failurePolicy.fatalExitCodes) as a user's error.

    Whatever else ended the pod keeps its meaning: the cluster's causes, and the trainer's own codes for continuing.
    """
    if failure.exit_class is not ExitClass.PROGRAM_ERROR or failure.exit_code not in codes:
        return failure
    text = (
        f"exit code {failure.exit_code} is one of failurePolicy.fatalExitCodes; correct the cause, and create a run "
        f"that continues from here (checkpoint.from): {failure.message}"
    )
    return replace(
        failure,
        exit_class=ExitClass.USER_ERROR,
        reason="FatalExitCode",
        message=shorten(text, MAX_MESSAGE),
        weight=_USER,
    )


def heaviest(failures: Iterable[Failure]) -> Failure | None:
    """Returns the most significant failure; the first of equals."""
    return max(failures, key=lambda failure: failure.weight, default=None)


def is_root_cause(failure: Failure) -> bool:
    """Returns whether a failure is a cause; a stop or a lost peer may only be its echo."""
    return failure.weight > _STOPPED


def is_lost(pod: ObservedPod, *, now: datetime, node_loss_s: float) -> bool:
    """Returns whether a pod's node has been away for so long that the pod counts as lost."""
    if pod.node_ready or pod.node_not_ready_since is None:
        return False
    return now - pod.node_not_ready_since >= timedelta(seconds=node_loss_s)


def pause_s(ends_at_step: int) -> float:
    """Returns the pause before the next attempt: none at first, then 1, 2, 4 … 60 s without a newer checkpoint."""
    if ends_at_step <= 1:
        return 0.0
    return min(MAX_PAUSE_S, float(2 ** min(ends_at_step - 2, 10)))


def _by_exit_code(pod: ObservedPod, code: int) -> Failure:
    exit_class, message = classify_exit_code(code), _message(pod)
    reason = _REASONS.get(code, "UserError" if exit_class is ExitClass.USER_ERROR else "ProgramError")
    weight = {
        ExitClass.USER_ERROR: _USER,
        ExitClass.PROGRAM_ERROR: _PROGRAM,
        # Above a crash: ranks whose peer ran out of memory abort in many ways.
        ExitClass.STOPPED: _TOO_LARGE if code == ExitCode.STEP_TOO_LARGE else _STOPPED,
        ExitClass.INFRASTRUCTURE: _PEER if code == ExitCode.LOST_PEER else _CODE,
        ExitClass.DONE: _PEER,
    }[exit_class]
    if code == ExitCode.STORE_UNAVAILABLE and SET_CLOCKS in message:
        reason, message = CLOCK_SKEW, f"the clock of node {pod.node} or the store's is wrong: {message}"
    return _failure(pod, exit_class, reason, weight, message)


def with_failure(base: AnyFailureStatus, failure: Failure, message: str, now: datetime) -> AnyFailureStatus:
    """Returns `base`, a status.lastFailure, with what is known of a failure; of a long message its end."""
    return replace(
        base,
        time=format_time(now),
        pod=failure.pod,
        node=failure.node,
        exit_code=failure.exit_code,
        class_=failure.exit_class.value,
        reason=failure.reason,
        message=shorten(message, MAX_MESSAGE),
    )


def _failure(pod: ObservedPod, exit_class: ExitClass, reason: str, weight: int, message: str) -> Failure:
    return Failure(
        exit_class, reason[:64], shorten(message, MAX_MESSAGE), weight, pod.name, pod.node[:253], pod.exit_code
    )


def _message(pod: ObservedPod) -> str:
    data = pod.message.encode(errors="replace")
    record = parse_progress(data) or parse_build(data)
    text = record.message if record is not None else pod.message.strip()
    return text or f"the pod left no message; see kubectl logs {pod.name}"
