"""What to do when the API server refuses objects of ours: quota, limits, Pod Security, webhooks. Pure.

The words are those of Kubernetes' own admission plug-ins; an unknown refusal is shown as it is.
"""

import re
from collections.abc import Mapping
from typing import Final

from lead_operator.resources.pod_settings import ComputeResources, PodSettings

OBJECTS_REFUSED: Final = "ObjectsRefused"
RESOURCES_OF_POD: Final = "spec.containers[0].resources"

# Fields of a pod that hold what a spec says, as the API server names them, and where the spec says it.
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
_INVALID = re.compile(r'Pod \S+: Pod "[^"]*" is invalid: (.*)', re.DOTALL)  # policies and webhooks say it otherwise
_COMPARED = re.compile(r"equal to (\S+) limit of ")  # a request with the limit of the same resource

_REMEDIES: Final = (  # the first whose words stand in the message
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


def explain_invalid(
    apply_error: str, fields: Mapping[str, str], resources: ComputeResources, settings: PodSettings
) -> str:
    """Returns which field of a spec makes pods that the API server holds invalid, and why; empty where none does."""
    found = _INVALID.fullmatch(apply_error)
    said = refusal = found[1] if found else ""
    for of_pod, of_spec in fields.items():
        if _asks_for(of_pod, refusal, resources, settings):
            said = said.replace(of_pod, of_spec)
    return said if said != refusal else ""


def _asks_for(of_pod: str, refusal: str, resources: ComputeResources, settings: PodSettings) -> bool:
    """Tells whether a spec itself sets what is refused; a LimitRange or a webhook fills in what it leaves out."""
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
    remedy = next((what for words, what in _REMEDIES if words in apply_error), "ask the administrator of the namespace")
    return f"the API server refuses objects: {apply_error}; {remedy}; the operator goes on trying"
