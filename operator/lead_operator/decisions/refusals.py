"""What to do when the API server refuses objects of ours: quota, limits, Pod Security, webhooks. Pure.

The words are those of Kubernetes' own admission plug-ins; an unknown refusal is shown as it is.
"""

from typing import Final

OBJECTS_REFUSED: Final = "ObjectsRefused"

_REMEDIES: Final = (  # the first whose words stand in the message
    ("exceeded quota", "raise the ResourceQuota of the namespace, wait until others give back, or ask for less"),
    ("failed quota", "set the requests and limits that the ResourceQuota of the namespace asks for"),
    ("usage per ", "raise the LimitRange of the namespace, or ask for what it allows"),
    ("violates PodSecurity", "let the namespace admit these pods (label pod-security.kubernetes.io/enforce)"),
    ("serviceaccount", "install the chart with this namespace among runs.namespaces: it makes the account"),
    ("PriorityClass", "create the PriorityClass, or a run with another scheduling.priorityClassName"),
    ("being terminated", "the namespace is being deleted; use another one"),
    ("admission webhook", "ask whoever runs that webhook in your cluster"),
    ("does not belong to this", "it is tried again as soon as the name is free"),
)


def explain_refusal(apply_error: str) -> str:
    """Returns why objects are missing, with what to do."""
    remedy = next((what for words, what in _REMEDIES if words in apply_error), "ask the administrator of the namespace")
    return f"the API server refuses objects: {apply_error}; {remedy}; the operator goes on trying"
