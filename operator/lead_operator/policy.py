"""What the administrator allows in specs: closed lists and bounds, written by the Helm chart as LEAD_POLICY.

The chart's ValidatingAdmissionPolicies hold the same lists at admission. The operator asks them too, of every resource
that has not begun: the policies may be switched off, and a resource may be older than they are.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from lead_operator.errors import SettingsError

NEVER_PRIORITY = "system-"  # PriorityClasses of the cluster's own pods, which preempt everything else
_WHERE = "environment variable LEAD_POLICY, the chart's policy,"


@dataclass(frozen=True)
class Policy:
    """Lists of names, each exact or ending in `*`, and bounds; the defaults are those of the chart's values.yaml."""

    allowed_priority_classes: tuple[str, ...] = ()
    allowed_schedulers: tuple[str, ...] = ("default-scheduler", "volcano", "scheduler-plugins-scheduler")
    allowed_queues: tuple[str, ...] = ("*",)  # LocalQueues of Kueue, which belong to the namespace
    allowed_labels: tuple[str, ...] = (
        "scheduling.x-k8s.io/pod-group",
        "pod-group.scheduling.sigs.k8s.io",
        "pod-group.scheduling.sigs.k8s.io/*",
    )
    allowed_annotations: tuple[str, ...] = ("scheduling.k8s.io/group-name",)
    allowed_node_selectors: tuple[str, ...] = (
        "kubernetes.io/arch",
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
        "nvidia.com/*",
        "amd.com/*",
    )
    allowed_tolerations: tuple[str, ...] = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/*", "habana.ai/gaudi")
    allowed_storage_classes: tuple[str, ...] = ()  # of session caches; the cluster's default class needs no entry
    allowed_claims: tuple[str, ...] = ("lead-source-*",)  # that source.claimName may mount
    allowed_resources: tuple[str, ...] = (
        "cpu",
        "memory",
        "ephemeral-storage",
        "nvidia.com/gpu",
        "nvidia.com/mig-*",
        "amd.com/gpu",
        "gpu.intel.com/*",
        "habana.ai/gaudi",
    )
    allowed_images: tuple[str, ...] = ()  # that closedLoop.image may name: what runs there is the user's own program
    max_nodes: int = 64
    max_parallelism: int = 16
    max_pods_per_run: int = 64  # nodes x parallelism
    max_gpus_per_pod: int = 16
    max_build_pods: int = 64
    reserved_claims: tuple[str, ...] = ()  # of the embedded store; the chart names them, no value does
    refused_namespaces: tuple[str, ...] = ()  # the release's own, unless runs.allowInReleaseNamespace

    def value(self, attribute: str) -> str:
        """Returns the key of the chart's values that an administrator sets to change an attribute."""
        return f"policy.{_camel(attribute)}"


def admits(patterns: Iterable[str], name: str) -> bool:
    """Returns whether a closed list holds a name: as it is, or by an entry that ends in `*`."""
    return any(name == each or (each.endswith("*") and name.startswith(each[:-1])) for each in patterns)


def read_policy(text: str) -> Policy:
    """Reads the policy from JSON; keys that are absent keep their defaults. Raises SettingsError that names the key."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise SettingsError(f"{_WHERE} is not JSON: {error}") from error
    known = {_camel(each.name): each for each in fields(Policy)}
    if not isinstance(document, dict) or set(document) - set(known):
        raise SettingsError(f"{_WHERE} is {text:.200}, expected an object with some of {', '.join(known)}")
    given: dict[str, Any] = {}
    for key, found in document.items():
        given[known[key].name] = _number(key, found) if key.startswith("max") else _names(key, found)
    return Policy(**given)


def _number(key: str, found: Any) -> int:
    if isinstance(found, int | float) and not isinstance(found, bool) and found == int(found) and found >= 0:
        return int(found)  # Helm writes whole numbers as floats at times
    raise SettingsError(f"{_WHERE} has {key} {found!r}, expected a whole number of at least 0")


def _names(key: str, found: Any) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(each, str) and each for each in found):
        raise SettingsError(f"{_WHERE} has {key} {found!r}, expected a list of names")
    if key == "allowedPriorityClasses" and any(each.startswith(NEVER_PRIORITY) for each in found):
        raise SettingsError(f"{_WHERE} has {key} {found!r}; {NEVER_PRIORITY}* is never allowed, leave it out")
    return tuple(found)


def _camel(attribute: str) -> str:
    first, *others = attribute.split("_")
    return first + "".join(each.capitalize() for each in others)
