"""What is kept of the objects that are watched, and what is read of a copy as it is: small, and without a model.

Pods come by the thousand and as the server stores them; a copy holds what `kube.observe` reads and nothing else.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from lead_operator import names
from lead_operator.decisions.formatting import parse_time
from lead_operator.decisions.observed import POD_ENDS
from lead_operator.kube.informer import Informer
from lead_operator.kube.kinds import KubernetesObject
from lead_operator.objects.closed_loop_pod import FETCH, SIMULATE
from lead_operator.objects.pod_skeleton import CONTAINER_NAME

INIT_CONTAINERS = (FETCH, SIMULATE)
MAX_POD_MESSAGE = 4096  # characters; the kubelet keeps as many bytes of a termination message
MAX_VOLUMES = 16  # of a pod, which are named where one is missing; ours have five
VOLUME_CLAIM = "persistentVolumeClaim"  # as a volume names its source
METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
OWNER_FIELDS = ("kind", "name", "uid", "controller")
MAX_OWNERS = 8  # of a child; ours have one, and who may make pods may name any number
POD_CONDITIONS = ("PodScheduled", "PodReadyToStartContainers", "Ready", "DisruptionTarget")  # those that are read


@dataclass(frozen=True)
class NodeHealth:
    """Whether a node answers, and since when it does not."""

    ready: bool
    not_ready_since: datetime | None = None


class NodeWatch:
    """Reads node health from the copies of nodes; without the right to watch nodes, every node counts as healthy.

    How long a node is away counts only while nodes are seen without a break. What cut the operator off may have cut off
    the nodes as well, and after it each needs a moment to report that it exists.
    """

    def __init__(self, informer: Informer) -> None:
        self.informer = informer
        self._missing_since: dict[str, datetime] = {}

    def health(self, node: str, now: datetime) -> NodeHealth:
        """Returns the health of a node by name; an empty name is a pod that has none yet."""
        if not node or not self.informer.synced.is_set():
            return NodeHealth(True)
        body, seen_since = self.informer.get("", node), self.informer.seen_since
        ready = {} if body is None else condition(body, "Ready")
        if ready.get("status") == "True":
            return NodeHealth(True)
        if seen_since is None:
            return NodeHealth(False)
        since = parse_time(ready.get("lastTransitionTime")) or now
        if body is None:
            since = self._missing_since.setdefault(node, now)
        return NodeHealth(False, max(since, now - timedelta(seconds=self.informer.now() - seen_since)))

    def returned(self, node: str) -> None:
        """Notes that a node is there again: if it goes once more, that is another absence."""
        self._missing_since.pop(node, None)


def caches_of(body: KubernetesObject) -> tuple[str, ...]:
    """Returns the names of the DatasetCaches that a TrainingRun's body references."""
    references = [dataset.get("cacheRef") for dataset in body.get("spec", {}).get("datasets", [])]
    return tuple(str(each.get("name", "")) for each in references if isinstance(each, dict))


def is_finished(body: KubernetesObject) -> bool:
    """Returns whether a TrainingRun has ended, by its conditions."""
    ends = (names.Condition.SUCCEEDED, names.Condition.FAILED)
    return any(condition(body, end).get("status") == "True" for end in ends)


def has_ended(child: KubernetesObject) -> bool:
    """Returns whether a pod has ended or a child of any kind is being deleted."""
    return "deletionTimestamp" in child["metadata"] or phase_of(child.get("status", {})) in POD_ENDS


def condition(body: KubernetesObject, kind: str) -> dict[str, Any]:
    """Returns the condition of a type, or an empty dict."""
    found: dict[str, Any] = next(
        (entry for entry in body.get("status", {}).get("conditions") or [] if entry.get("type") == kind), {}
    )
    return found


def phase_of(status: KubernetesObject) -> str:
    """Returns a pod's phase, or how its work has ended where a container added at admission keeps the pod running.

    Of a pod that nothing keeps the phase follows by itself, and with it the reason of the deletion. Native
    sidecars keep none: the kubelet stops them.
    """
    phase, ours = str(status.get("phase", "Pending")), own_container(status)
    ended = (ours.get("state") or {}).get("terminated")
    others = (each for each in status.get("containerStatuses") or [] if each is not ours)
    kept = any("terminated" not in (each.get("state") or {}) for each in others)
    if ended is None or not (kept or phase in POD_ENDS):
        return phase
    return "Failed" if ended["exitCode"] else "Succeeded"


def own_container(status: KubernetesObject) -> KubernetesObject:
    """Returns the status of the container that works; others may have been added at admission."""
    containers: list[KubernetesObject] = status.get("containerStatuses") or [{}]
    return next((each for each in containers if each.get("name") == CONTAINER_NAME), containers[0])


def init_container(status: KubernetesObject) -> KubernetesObject:
    """Returns the first of our init containers that has not ended well: what the pod does now; {} where none is."""
    for each in status.get("initContainerStatuses") or []:
        ended = (each.get("state") or {}).get("terminated")
        if each.get("name") in INIT_CONTAINERS and (ended is None or ended.get("exitCode")):
            found: KubernetesObject = each
            return found
    return {}


def trim_pod(pod: KubernetesObject) -> KubernetesObject:
    """Returns the part of a pod that this module reads; a thousand whole pods would cost tens of megabytes."""
    metadata, status = pod["metadata"], pod.get("status", {})
    read = _only(metadata.get("annotations", {}), names.Annotation.LAST_CHECKPOINT, names.Annotation.PULLS)
    annotations = {"annotations": {key: value[:MAX_POD_MESSAGE] for key, value in read.items()}} if read else {}
    conditions = [each for each in status.get("conditions") or [] if each.get("type") in POD_CONDITIONS]
    containers = status.get("containerStatuses") or []
    inits = status.get("initContainerStatuses") or []
    ours = [_only(each, "name", "state") for each in inits if each.get("name") in INIT_CONTAINERS]
    return {
        "metadata": _trim_metadata(metadata) | annotations,
        "spec": {
            "nodeName": pod.get("spec", {}).get("nodeName", ""),
            "volumes": [
                each for each in pod.get("spec", {}).get("volumes", []) if "secret" in each or VOLUME_CLAIM in each
            ][:MAX_VOLUMES],
        },
        "status": {
            **_only(status, "phase", "reason", "message"),
            "conditions": [
                _only(each, "type", "status", "reason", "message", "lastTransitionTime") for each in conditions
            ],
            "containerStatuses": [_only(each, "name", "state") for each in containers],
            **({"initContainerStatuses": ours} if ours else {}),
        },
    }


def trim_node(node: KubernetesObject) -> KubernetesObject:
    """Returns a node's name and its Ready condition."""
    return {
        "metadata": {key: node["metadata"][key] for key in ("name", "uid", "resourceVersion")},
        "status": {"conditions": [condition(node, "Ready")]},
    }


def trim_child(child: KubernetesObject) -> KubernetesObject:
    """Returns a child's metadata: of services and claims nothing else matters."""
    return {"metadata": _trim_metadata(child["metadata"])}


def _trim_metadata(metadata: KubernetesObject) -> KubernetesObject:
    labels = {key: value for key, value in metadata.get("labels", {}).items() if key.startswith(names.GROUP)}
    owners = metadata.get("ownerReferences", [])
    if len(owners) > MAX_OWNERS:  # at most one of them is a controller
        owners = sorted(owners, key=lambda owner: not owner.get("controller"))[:MAX_OWNERS]
    return {
        **_only(metadata, *METADATA),
        "labels": labels,
        "ownerReferences": [_only(owner, *OWNER_FIELDS) for owner in owners],
    }


def _only(value: KubernetesObject, *keys: str) -> KubernetesObject:
    return {key: value[key] for key in keys if key in value}
