"""What people should do: where the API server refuses objects, a pod does not start, or a store lets nobody in. Pure.

The patterns are those of Kubernetes' own admission plug-ins; an unknown rejection is shown unchanged. A
container runtime reports a failed pull as a chain of causes, each with the image's name in it, a thousand characters
long: of that the sentence has the image, once, and the last cause.
"""

import re
from collections.abc import Collection, Mapping
from typing import Final

from lead_operator.decisions.observed import ObservedPod
from lead_operator.near_names import explain_unknown_profile
from lead_operator.resources.pod_settings import ComputeResources, PodSettings
from lead_operator.settings import StorageProfile

OBJECTS_REFUSED: Final = "ObjectsRefused"
RESOURCES_OF_POD: Final = "spec.containers[0].resources"

# Fields of a pod that come from a spec, as the API server names them, and their place in the spec.
RUN_FIELDS: Final = {
    RESOURCES_OF_POD: "spec.resources",
    "spec.tolerations": "spec.podOverrides.tolerations",
    "spec.nodeSelector": "spec.podOverrides.nodeSelector",
    "metadata.labels": "spec.podOverrides.labels",
    "metadata.annotations": "spec.podOverrides.annotations",
}
CACHE_FIELDS: Final = {
    RESOURCES_OF_POD: "spec.build.resources",
    "spec.tolerations": "spec.build.tolerations",
    "spec.nodeSelector": "spec.build.nodeSelector",
}
_INVALID = re.compile(r'Pod \S+: Pod "[^"]*" is invalid: (.*)', re.DOTALL)  # policies and webhooks use other texts
_COMPARED = re.compile(r"equal to (\S+) limit of ")  # a request with the limit of the same resource

_REFUSAL_REMEDIES: Final = (  # the first whose text is in the message
    ("exceeded quota", "raise the ResourceQuota of the namespace, wait until others give back, or ask for less"),
    ("failed quota", "set the requests and limits that the ResourceQuota of the namespace asks for"),
    ("usage per ", "raise the LimitRange of the namespace, or ask for what it allows"),
    ("violates PodSecurity", "let the namespace admit these pods (label pod-security.kubernetes.io/enforce)"),
    ("serviceaccount", "install the chart with this namespace among runs.namespaces: it makes the account"),
    ("PriorityClass", "create the PriorityClass, or a run with another scheduling.priorityClassName"),
    ("being terminated", "the namespace is being deleted; use another one"),
    ("admission webhook", "ask whoever runs that webhook in your cluster"),
    (" limit of ", "raise the default limit in the LimitRange of the namespace, or ask with a limit of your own"),
    ("does not belong to this", "it is tried again as soon as the name is free"),
)
STORE_DENIED = "StoreDenied"  # the reason of a pod that ended so: a bad key, a missing right, an unknown authority
UNSCHEDULABLE = "free resources, or create a run with smaller resources or fewer nodes; nodes may be cordoned"
BUILD_UNSCHEDULABLE = "free resources, or ask for less in build.resources, which may be changed in place"
_PULLS = ("ImagePullBackOff", "ErrImagePull")
_START_REMEDIES = {
    **dict.fromkeys(
        _PULLS,
        "check the trainer image in the chart's values and the pull secrets of the namespace; {describe} shows all of "
        "the message",
    ),
    "ErrImageNeverPull": "load the trainer image on the node or change images.trainer.pullPolicy in the chart's values",
    "InvalidImageName": "correct the trainer image in the chart's values",
    "CreateContainerConfigError": "create the Secret that the message names in the namespace of the run",
    "FailedMount": "check that each exists in the namespace; if all do, {describe} shows the cause",
    "SchedulingGated": "the queue has not admitted it yet; see kubectl get workloads, or ask whoever runs the queue",
}

_MISSED_DEVICE = re.compile(r"Insufficient ([a-z0-9.-]+/[A-Za-z0-9._-]*[A-Za-z0-9])")  # these have a domain
_IMAGE = re.compile(r'image \\?"([^"\\]+)')
_NO_CAUSE = re.compile(r'Back-off pulling image "[^"]*"')  # all that an older kubelet reports while it waits
MAX_REASON = 512  # characters of the kubelet's or the scheduler's message
MAX_CAUSE = 160
MIN_CAUSE = 20  # shorter ones, such as `not found`, mean nothing without the one before


def unknown_profile(name: str, known: Collection[str]) -> str:
    """Returns that a spec names a storage profile which is not defined, and what to do; empty where it is."""
    remedy = "ask the administrator to define it, or recreate this with one that is: the field is immutable"
    return "" if name in known else f"{explain_unknown_profile(name, known)}; {remedy}"


def explain_invalid(
    apply_error: str, fields: Mapping[str, str], resources: ComputeResources, settings: PodSettings
) -> str:
    """Returns which field of a spec makes pods that the API server holds invalid, and why; empty where none does."""
    found = _INVALID.fullmatch(apply_error)
    message = refusal = found[1] if found else ""
    for of_pod, of_spec in fields.items():
        if _asks_for(of_pod, refusal, resources, settings):
            message = message.replace(of_pod, of_spec)
    return message if message != refusal else ""


def _asks_for(of_pod: str, refusal: str, resources: ComputeResources, settings: PodSettings) -> bool:
    """Returns whether the spec itself sets the rejected field; a LimitRange or a webhook may set others."""
    if of_pod == RESOURCES_OF_POD:
        compared = _COMPARED.findall(refusal)
        return not compared or any(name in resources.requests and name in resources.limits for name in compared)
    if of_pod == "spec.tolerations":
        return bool(settings.tolerations)
    keys = {
        "spec.nodeSelector": settings.node_selector,
        "metadata.labels": settings.labels,
        "metadata.annotations": settings.annotations,
    }[of_pod]  # the CRD has checked their values
    return any(f'"{key}"' in refusal for key in keys)


def explain_refusal(apply_error: str) -> str:
    """Returns why objects are missing, with what to do."""
    remedy = next(
        (what for pattern, what in _REFUSAL_REMEDIES if pattern in apply_error),
        "ask the administrator of the namespace",
    )
    return f"the API server refuses objects: {apply_error}; {remedy}; the operator goes on trying"


def correct_pods_access(profile: StorageProfile | None, namespace: str, *, build: bool) -> str:
    """Returns what to correct for the pods of a namespace: training pods, or those of a build."""
    if profile is None:
        return "ask the administrator for the storage profile"
    if profile.credentials != "static":
        return f"ask the administrator what the store of profile {profile.name} lets pods of namespace {namespace} do"
    secret = (profile.build_secret_name if build else "") or profile.secret_name
    authority = f"ConfigMap {profile.ca_config_map}" if profile.ca_config_map else "it"
    return (
        f"correct the key in Secret {secret} of namespace {namespace}, what the store lets it do, or ca.crt in "
        f"{authority} (storage profile {profile.name})"
    )


def operators_key(profile: StorageProfile) -> str:
    """Returns where the operator's own key of a profile is, as a clause; empty where that is not known."""
    namespace, _, name = profile.operator_secret.rpartition("/")
    return f"; the operator's key is in Secret {name} of namespace {namespace}, with ca.crt if any" if namespace else ""


def explain_waiting(pod: ObservedPod, remedy: str = "") -> str:
    """Returns why a pod does not start, with what to do: `remedy`, or what helps most pods that wait for this."""
    if not remedy and pod.waiting_reason == "Unschedulable":
        remedy = _unschedulable(pod)
    usual = _START_REMEDIES.get(pod.waiting_reason, "see {describe}")
    remedy = remedy or usual.format(describe=f"kubectl describe pod {pod.name}")
    return f"pod {pod.name} waits: {what_it_waits_for(pod)}; {remedy}"


def what_it_waits_for(pod: ObservedPod) -> str:
    """Returns reason and cause of a pod that does not start, in short."""
    text = pod.waiting_message
    if pod.waiting_reason in _PULLS and (image := _IMAGE.search(text)):
        return f"{pod.waiting_reason}: image {image[1][:MAX_CAUSE]}{_last_cause(text)}"
    return f"{pod.waiting_reason}: {_cut(text, MAX_REASON)}" if text else pod.waiting_reason


def _last_cause(text: str) -> str:
    """Returns the end of a chain of causes, as many links of it as are useful; empty where there is none."""
    if _NO_CAUSE.fullmatch(text.strip()):
        return " is not there yet; the kubelet waits before it pulls again"
    links = text.strip().split(": ")
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
