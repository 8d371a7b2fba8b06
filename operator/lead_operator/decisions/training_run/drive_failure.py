"""Why an attempt to drive has failed, or what it waits for: from its pod to a sentence. Pure."""

from datetime import datetime, timedelta

from lead_operator.decisions.failure_policy import is_lost
from lead_operator.decisions.formatting import shorten
from lead_operator.decisions.observed import ObservedPod
from lead_operator.decisions.remedies import explain_waiting, what_it_waits_for
from lead_operator.objects.closed_loop_pod import FETCH, SIMULATE

IMAGE_WITHIN_S = 300.0  # from the pod's creation: an image that is not there by then comes by nobody's waiting
END_WITHIN_S = 600.0  # after its deadline, which the kubelet keeps: a node that answers ends a pod within seconds
RESULT_WITHIN_S = 60.0  # after a good end: the bucket is read less often than the pods
MAX_TEXT = 512
_NO_START = (
    "ErrImageNeverPull", "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError",
    "CreateContainerError", "RunContainerError", "FailedMount",
)  # fmt: skip
_STEPS = {
    FETCH: "its weights or routes could not be fetched",
    SIMULATE: "the command failed",
    "": "its results could not be published",
}


def drive_failure(
    pod: ObservedPod, now: datetime, *, timeout_s: int, node_loss_s: float, results_read: bool
) -> str:  # fmt: skip
    """Returns why the attempt of a pod has failed; empty while it goes on."""
    if pod.phase == "Failed":
        return _of_ended(pod, timeout_s)
    if pod.phase == "Succeeded":
        ended_s = abs((now - (pod.finished_at or now)) / timedelta(seconds=1))
        late = results_read and ended_s >= RESULT_WITHIN_S
        return f"pod {pod.name} ended well, but its result is not in the object store" if late else ""
    if is_lost(pod, now=now, node_loss_s=node_loss_s):
        return f"node {pod.node} of pod {pod.name} was not ready for {node_loss_s:.0f} s"
    left_s = start_left_s(pod, now, timeout_s)
    if left_s > 0:
        return ""
    if pod.waiting_reason:
        return shorten(f"{why_it_waits(pod)}; it was given up", MAX_TEXT)
    return f"pod {pod.name} did not end within closedLoop.timeoutSeconds ({timeout_s} s); node {pod.node} may be stuck"


def start_left_s(pod: ObservedPod, now: datetime, timeout_s: int) -> float:
    """Returns the seconds that a live pod has left before it is given up."""
    age_s = 0.0 if pod.created_at is None else (now - pod.created_at) / timedelta(seconds=1)
    if pod.waiting_reason in _NO_START:
        return IMAGE_WITHIN_S - age_s
    if pod.waiting_reason and not pod.node:
        return timeout_s - age_s
    return timeout_s + END_WITHIN_S - age_s


def why_it_waits(pod: ObservedPod) -> str:
    """Returns why a pod does not start, with what to do."""
    if pod.container == SIMULATE:
        remedy = "correct closedLoop.image, which may be changed in place, or the pull secrets of the namespace"
        return f"pod {pod.name} waits: {what_it_waits_for(pod)}; {remedy}"
    return explain_waiting(pod)


def _of_ended(pod: ObservedPod, timeout_s: int) -> str:
    if pod.reason == "DeadlineExceeded":
        return (
            f"pod {pod.name} was ended after closedLoop.timeoutSeconds ({timeout_s} s), while "
            f"{'the command ran' if pod.container == SIMULATE else 'it was not done'}; raise it if driving is only slow"
        )
    how = pod.reason if pod.exit_code is None else f"exit code {pod.exit_code}"
    memory = "; it needed more memory than closedLoop.resources.limits.memory" if pod.reason == "OOMKilled" else ""
    text = shorten(pod.message, MAX_TEXT // 2) or f"see kubectl logs {pod.name} -c {pod.container or 'lead'}"
    return shorten(f"{_STEPS.get(pod.container, 'it failed')} ({how}){memory}: {text}", MAX_TEXT)
