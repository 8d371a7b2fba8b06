"""Why a pod does not start, in a sentence with what to do. Pure.

A container runtime words a pull that fails as a chain of causes, each with the image's name in it, a thousand
characters long: of that the sentence has the image, once, and the last cause.
"""

import re

from lead_operator.decisions.observed import ObservedPod

UNSCHEDULABLE = "free resources, or create a run with smaller resources or fewer nodes; nodes may be cordoned"
BUILD_UNSCHEDULABLE = "free resources, or ask for less in build.resources, which may be changed in place"
_PULLS = ("ImagePullBackOff", "ErrImagePull")
_REMEDIES = {
    **dict.fromkeys(
        _PULLS,
        "check the trainer image in the chart's values and the pull secrets of the namespace; {describe} shows all of "
        "the message",
    ),
    "ErrImageNeverPull": "load the trainer image on the node or change images.trainer.pullPolicy in the chart's values",
    "InvalidImageName": "correct the trainer image in the chart's values",
    "CreateContainerConfigError": "create the Secret that the message names in the namespace of the run",
    "FailedMount": "check that each exists in the namespace; if all do, {describe} tells what is wrong",
    "SchedulingGated": "the queue has not admitted it yet; see kubectl get workloads, or ask who runs the queue",
}

_MISSED_DEVICE = re.compile(r"Insufficient ([a-z0-9.-]+/[A-Za-z0-9._-]*[A-Za-z0-9])")  # these have a domain
_IMAGE = re.compile(r'image \\?"([^"\\]+)')
_NO_CAUSE = re.compile(r'Back-off pulling image "[^"]*"')  # all that an older kubelet says while it waits
MAX_TOLD = 512  # characters of the kubelet's or the scheduler's own words
MAX_CAUSE = 160
MIN_CAUSE = 20  # shorter ones, such as `not found`, say nothing without the one before


def explain_waiting(pod: ObservedPod, remedy: str = "") -> str:
    """Returns why a pod does not start, with what to do: `remedy`, or what helps most pods that wait for this."""
    if not remedy and pod.waiting_reason == "Unschedulable":
        remedy = _unschedulable(pod)
    usual = _REMEDIES.get(pod.waiting_reason, "see {describe}")
    remedy = remedy or usual.format(describe=f"kubectl describe pod {pod.name}")
    return f"pod {pod.name} waits: {what_it_waits_for(pod)}; {remedy}"


def what_it_waits_for(pod: ObservedPod) -> str:
    """Returns reason and cause of a pod that does not start, in few words."""
    told = pod.waiting_message
    if pod.waiting_reason in _PULLS and (image := _IMAGE.search(told)):
        return f"{pod.waiting_reason}: image {image[1][:MAX_CAUSE]}{_last_cause(told)}"
    return f"{pod.waiting_reason}: {_cut(told, MAX_TOLD)}" if told else pod.waiting_reason


def _last_cause(told: str) -> str:
    """Returns the end of a chain of causes, as many links of it as say something; empty where there is none."""
    if _NO_CAUSE.fullmatch(told.strip()):
        return " is not there yet; the kubelet waits before it pulls again"
    links = told.strip().split(": ")
    cause = links.pop()
    while links and len(cause) < MIN_CAUSE:
        cause = f"{links.pop()}: {cause}"
    return f": {_cut(cause, MAX_CAUSE)}"


def _cut(text: str, limit: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _unschedulable(pod: ObservedPod) -> str:
    """Returns what to do for a pod that fits no node; a device that the scheduler misses is named."""
    remedy = BUILD_UNSCHEDULABLE if pod.role == "build" else UNSCHEDULABLE
    devices = sorted(set(_MISSED_DEVICE.findall(pod.waiting_message)))
    if not devices:
        return remedy
    named = ", ".join(devices)
    who = "see kubectl describe nodes for who offers and who uses it"
    return f"no node has enough free {named}, or none offers it: {who}; {remedy}"
