"""One look at the cluster: from the informers' copies to what the pure decisions may know.

Called by `controllers.reconcile` at the start of each pass. It reads copies only, makes no call, and trusts an owner
reference's UID alone: a pod of an earlier run of the same name is never counted.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from lead_operator import names
from lead_operator.decisions.observed import ObservedCache, ObservedClaim, ObservedPod
from lead_operator.kube.informer import Informer
from lead_operator.kube.kinds import KubernetesObject
from lead_operator.names import CachePhase, RunPhase
from lead_operator.near_names import near_name
from lead_operator.objects.pod_skeleton import CONTAINER_NAME
from lead_operator.resources.dataset_cache import DatasetCache
from lead_operator.resources.dataset_cache_status import BuildStatus, DatasetCacheStatus
from lead_operator.resources.status_format import parse_status
from lead_operator.resources.training_run import TrainingRun
from lead_operator.resources.training_run_status import TrainingRunStatus

MAX_MESSAGE = 4096
MAX_DIGITS = 9  # of a number in a label; who may make pods may write any there
MAX_VOLUMES = 16  # of a pod, which are named where one is missing; ours have five
CLAIM = "persistentVolumeClaim"  # as a volume names its source
MOUNTED_AFTER_S = 60.0  # where nothing is missing, volumes and network are there in seconds
AS_IT_SHOULD = ("ContainerCreating", "PodInitializing")  # reasons to wait that nobody needs to act on
ENDS = ("Succeeded", "Failed")  # phases
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
    the nodes as well, and after it each needs a moment to say that it is there.
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
        return NodeHealth(False, max(since, now - timedelta(seconds=time.monotonic() - seen_since)))

    def returned(self, node: str) -> None:
        """Notes that a node is there again: if it goes once more, that is another absence."""
        self._missing_since.pop(node, None)


def observe_pods(pods: Sequence[KubernetesObject], nodes: NodeWatch, now: datetime) -> tuple[ObservedPod, ...]:
    """Returns what is known of a resource's own pods; one without our labels is not ours to judge and left out."""
    return tuple(observe_pod(pod, nodes, now) for pod in pods if names.Label.ROLE in pod["metadata"].get("labels", {}))


def observe_pod(pod: KubernetesObject, nodes: NodeWatch, now: datetime) -> ObservedPod:
    """Returns what is known of one pod."""
    metadata, status, labels = pod["metadata"], pod.get("status", {}), pod["metadata"]["labels"]
    container = _own_container(status)
    state = container.get("state") or {}
    ended, waiting, running = state.get("terminated") or {}, state.get("waiting") or {}, state.get("running") or {}
    unscheduled = condition(pod, "PodScheduled")
    if not waiting and unscheduled.get("status") == "False":
        waiting = unscheduled
    if waiting.get("reason") in AS_IT_SHOULD:
        waiting = {} if "deletionTimestamp" in metadata else _waits_for_volumes(pod, now)
    disruption = condition(pod, "DisruptionTarget")
    node = pod.get("spec", {}).get("nodeName", "")
    health = nodes.health(node, now)
    role, phase = labels[names.Label.ROLE], _phase(status)
    return ObservedPod(
        name=metadata["name"],
        uid=metadata["uid"],
        role=role,
        stage=labels.get(names.Label.STAGE, ""),
        seed=_number(labels.get(names.Label.SEED)),
        attempt=_number(labels.get(names.Label.ATTEMPT)),
        rank=_number(labels.get(names.Label.INDEX if role == names.Role.BUILD else names.Label.RANK)),
        phase=phase,
        version=metadata.get("resourceVersion", ""),
        ready=condition(pod, "Ready").get("status") == "True",
        lingers=phase in ENDS and status.get("phase") not in ENDS,
        deleting="deletionTimestamp" in metadata,
        grace_ends_at=parse_time(metadata.get("deletionTimestamp")),  # the API server adds the grace to it
        node=node,
        created_at=parse_time(metadata.get("creationTimestamp")),
        started_at=parse_time(running.get("startedAt") or ended.get("startedAt")),
        finished_at=parse_time(ended.get("finishedAt")),
        exit_code=ended.get("exitCode"),
        reason=status.get("reason") or ended.get("reason", ""),
        disruption=disruption.get("reason", "") if disruption.get("status") == "True" else "",
        waiting_reason=waiting.get("reason", ""),
        waiting_message=waiting.get("message", "")[:MAX_MESSAGE],
        message=(ended.get("message") or status.get("message", ""))[:MAX_MESSAGE],
        checkpoint_time=metadata.get("annotations", {}).get(names.Annotation.LAST_CHECKPOINT, ""),
        pulls=metadata.get("annotations", {}).get(names.Annotation.PULLS, ""),
        node_ready=health.ready,
        node_not_ready_since=health.not_ready_since,
    )


def expected_training_pods(
    run: TrainingRun, status: TrainingRunStatus, copies: Iterable[KubernetesObject] = (), *, ended: bool = False
) -> Iterator[str]:
    """Yields the names of the pods that were there, by a run's status, and whose end is not accounted for.

    `copies`: the run's pods that are seen, perhaps under the names that an older operator gave them; they are left out.
    `ended`: instead, those of the last attempt of each instance that will have another.
    """
    told = (names.Label.STAGE, names.Label.SEED, names.Label.ATTEMPT, names.Label.RANK)
    seen = {tuple(pod["metadata"].get("labels", {}).get(label) for label in told) for pod in copies}
    for entry in status.stages:
        attempt, last_ended = entry.attempt, entry.ended_attempt
        over = entry.phase in (RunPhase.SUCCEEDED, RunPhase.FAILED)
        created = entry.book is not None and entry.book.created
        if (0 < attempt == last_ended and not over) if ended else (created and attempt > last_ended):
            for rank in range(run.nodes):
                if (entry.name, str(entry.seed), str(attempt), str(rank)) not in seen:
                    yield names.training_pod_name(run.identity.name, entry.name, entry.seed, attempt, rank)


def expected_build_pods(cache: DatasetCache, status: DatasetCacheStatus, *, ended: bool = False) -> Iterator[str]:
    """Yields the names of the build pods that were there, by a cache's status, as for a run; none of an ended build."""
    build, identity = status.build or BuildStatus(), cache.identity
    if status.phase in (CachePhase.READY, CachePhase.FAILED) or build.generation != identity.generation:
        return
    for worker in build.workers:
        attempt, last_ended = worker.attempt, worker.ended_attempt
        there = 0 < attempt == last_ended if ended else worker.created and attempt > last_ended
        if there and not worker.done:
            yield names.build_pod_name(identity.name, identity.generation, attempt, worker.index, worker.stage)


def observe_cache(name: str, body: KubernetesObject | None, others: Iterable[str] = ()) -> ObservedCache:
    """Returns what a run may know of a DatasetCache; one whose newest spec is not answered yet is not ready.

    `others` are the names of those in the namespace.
    """
    if body is None:
        return ObservedCache(name=name, found=False, near=near_name(name, others))
    status = parse_status(DatasetCacheStatus, body.get("status"))
    current = status.observed_generation == body["metadata"]["generation"]
    is_failed = current and status.holds(names.Condition.FAILED)
    explains = status.condition(names.Condition.FAILED if is_failed else names.Condition.READY)
    return ObservedCache(
        name=name,
        found=True,
        recipe=body["spec"].get("recipe", ""),
        ready=current and status.holds(names.Condition.READY) and "deletionTimestamp" not in body["metadata"],
        failed=is_failed,
        digest=status.digest,
        manifest_sha256=status.manifest_sha256,
        message=explains.message if explains is not None else "",
        storage_profile=body["spec"].get("storageProfile", ""),
    )


def observe_claim(body: KubernetesObject) -> ObservedClaim:
    """Returns what is known of a session-cache claim."""
    metadata = body["metadata"]
    created_at = datetime.fromisoformat(metadata["creationTimestamp"])
    return ObservedClaim(metadata["name"], metadata["uid"], created_at, deleting="deletionTimestamp" in metadata)


def source_claim_owner(claim: KubernetesObject | None) -> str:
    """Returns whose a claim is that was never meant as raw data; empty for all others.

    A StatefulSet gives its claims the labels of its selector: so the volume of any embedded store is known, whatever
    the release is called.
    """
    labels = (claim or {}).get("metadata", {}).get("labels") or {}
    if labels.get(names.Label.MANAGED_BY) == names.FIELD_MANAGER:
        run = labels.get(names.Label.RUN)
        return f"the run {run}, which keeps its session cache there" if run else "runs that share a session cache"
    if labels.get(names.Label.APP) == names.APP_NAME:
        return "a release of this chart"
    return ""


def is_shared_claim(name: str, claim: KubernetesObject) -> bool:
    """Tells whether a claim is one that runs share under a name."""
    return bool(claim["metadata"].get("labels", {}).get(names.Label.SHARED_CLAIM) == name)


def caches_of(body: KubernetesObject) -> tuple[str, ...]:
    """Returns the names of the DatasetCaches that a TrainingRun's body references."""
    references = [dataset.get("cacheRef") for dataset in body.get("spec", {}).get("datasets", [])]
    return tuple(str(each.get("name", "")) for each in references if isinstance(each, dict))


def is_finished(body: KubernetesObject) -> bool:
    """Tells whether a TrainingRun has ended, by its conditions."""
    ends = (names.Condition.SUCCEEDED, names.Condition.FAILED)
    return any(condition(body, end).get("status") == "True" for end in ends)


def has_ended(child: KubernetesObject) -> bool:
    """Tells whether a pod has ended or a child of any kind is being deleted."""
    return "deletionTimestamp" in child["metadata"] or _phase(child.get("status", {})) in ENDS


def condition(body: KubernetesObject, kind: str) -> dict[str, Any]:
    """Returns the condition of a type, or an empty dict."""
    found: dict[str, Any] = next(
        (entry for entry in body.get("status", {}).get("conditions") or [] if entry.get("type") == kind), {}
    )
    return found


def parse_time(text: str | None) -> datetime | None:
    """Returns a Kubernetes time stamp as an aware datetime, or None."""
    return datetime.fromisoformat(text) if text else None


def trim_pod(pod: KubernetesObject) -> KubernetesObject:
    """Returns the part of a pod that this module reads; a thousand whole pods would cost tens of megabytes."""
    metadata, status = pod["metadata"], pod.get("status", {})
    read = _only(metadata.get("annotations", {}), names.Annotation.LAST_CHECKPOINT, names.Annotation.PULLS)
    annotations = {"annotations": {key: value[:MAX_MESSAGE] for key, value in read.items()}} if read else {}
    conditions = [each for each in status.get("conditions") or [] if each.get("type") in POD_CONDITIONS]
    containers = status.get("containerStatuses") or []
    return {
        "metadata": _trim_metadata(metadata) | annotations,
        "spec": {
            "nodeName": pod.get("spec", {}).get("nodeName", ""),
            "volumes": [each for each in pod.get("spec", {}).get("volumes", []) if "secret" in each or CLAIM in each][
                :MAX_VOLUMES
            ],
        },
        "status": {
            **_only(status, "phase", "reason", "message"),
            "conditions": [
                _only(each, "type", "status", "reason", "message", "lastTransitionTime") for each in conditions
            ],
            "containerStatuses": [_only(each, "name", "state") for each in containers],
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


def _waits_for_volumes(pod: KubernetesObject, now: datetime) -> dict[str, str]:
    """Returns a reason to wait where a scheduled pod has no sandbox for long: kubelet tells why in an event alone.

    Kubernetes pulls images only when the sandbox is there, so that a slow pull is not taken for a missing Secret.
    """
    scheduled = parse_time(condition(pod, "PodScheduled").get("lastTransitionTime"))
    begun = condition(pod, "PodReadyToStartContainers").get("status") != "False"
    if begun or scheduled is None or (now - scheduled).total_seconds() < MOUNTED_AFTER_S:
        return {}
    sources = pod.get("spec", {}).get("volumes", [])
    named = [f"Secret {each['secret'].get('secretName', '')}" for each in sources if "secret" in each]
    named += [f"claim {each[CLAIM]['claimName']}" for each in sources if CLAIM in each]
    text = f"its volumes or its network are not there after {MOUNTED_AFTER_S:.0f} s; it mounts {', '.join(named)}"
    return {"reason": "FailedMount", "message": text} if named else {}


def _phase(status: KubernetesObject) -> str:
    """Returns a pod's phase, or how its work has ended where a container added at admission keeps the pod running.

    Of a pod that nothing keeps the phase follows by itself, and with it the word of who took the pod away. Native
    sidecars keep none: the kubelet stops them.
    """
    phase, ours = str(status.get("phase", "Pending")), _own_container(status)
    ended = (ours.get("state") or {}).get("terminated")
    others = (each for each in status.get("containerStatuses") or [] if each is not ours)
    kept = any("terminated" not in (each.get("state") or {}) for each in others)
    if ended is None or not (kept or phase in ENDS):
        return phase
    return "Failed" if ended["exitCode"] else "Succeeded"


def _own_container(status: KubernetesObject) -> KubernetesObject:
    """Returns the status of the container that works; others may have been added at admission."""
    containers: list[KubernetesObject] = status.get("containerStatuses") or [{}]
    return next((each for each in containers if each.get("name") == CONTAINER_NAME), containers[0])


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS else 0
