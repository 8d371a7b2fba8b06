"""A snapshot of the cluster: from the informers' copies to the input of the pure decisions.

Called by both controllers at the start of each pass. It reads copies only, makes no call, and trusts an owner
reference's UID alone: a pod of an earlier run of the same name is never counted.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from lead_operator import names
from lead_operator.decisions.formatting import parse_time
from lead_operator.decisions.observed import POD_ENDS, ObservedCache, ObservedClaim, ObservedPod
from lead_operator.kube.copies import (
    MAX_POD_MESSAGE,
    VOLUME_CLAIM,
    NodeWatch,
    condition,
    init_container,
    own_container,
    phase_of,
)
from lead_operator.kube.kinds import KubernetesObject
from lead_operator.names import CachePhase, RunPhase
from lead_operator.near_names import near_name
from lead_operator.resources.closed_loop_status import DRIVING
from lead_operator.resources.dataset_cache import DatasetCache
from lead_operator.resources.dataset_cache_status import BuildStatus, DatasetCacheStatus
from lead_operator.resources.status_format import parse_status
from lead_operator.resources.training_run import TrainingRun
from lead_operator.resources.training_run_status import TrainingRunStatus

MAX_DIGITS = 9  # of a number in a label; who may make pods may write any there
MOUNTED_AFTER_S = 60.0  # where nothing is missing, volumes and network are there in seconds
AS_IT_SHOULD = ("ContainerCreating", "PodInitializing")  # reasons to wait that nobody needs to act on


def observe_pods(pods: Sequence[KubernetesObject], nodes: NodeWatch, now: datetime) -> tuple[ObservedPod, ...]:
    """Returns what is known of a resource's own pods; one without our labels is not ours to judge and left out."""
    return tuple(observe_pod(pod, nodes, now) for pod in pods if names.Label.ROLE in pod["metadata"].get("labels", {}))


def observe_pod(pod: KubernetesObject, nodes: NodeWatch, now: datetime) -> ObservedPod:
    """Returns what is known of one pod."""
    metadata, status, labels = pod["metadata"], pod.get("status", {}), pod["metadata"]["labels"]
    begins = init_container(status)  # of a pod that has some: its main container begins after them
    state = (begins or own_container(status)).get("state") or {}
    ended, waiting, running = state.get("terminated") or {}, state.get("waiting") or {}, state.get("running") or {}
    unscheduled = condition(pod, "PodScheduled")
    if not waiting and unscheduled.get("status") == "False":
        waiting = unscheduled
    if waiting.get("reason") in AS_IT_SHOULD:
        waiting = {} if "deletionTimestamp" in metadata else _waits_for_volumes(pod, now)
    disruption = condition(pod, "DisruptionTarget")
    node = pod.get("spec", {}).get("nodeName", "")
    health = nodes.health(node, now)
    role, phase = labels[names.Label.ROLE], phase_of(status)
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
        kept_by_sidecar=phase in POD_ENDS and status.get("phase") not in POD_ENDS,
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
        waiting_message=waiting.get("message", "")[:MAX_POD_MESSAGE],
        message=(ended.get("message") or status.get("message", ""))[:MAX_POD_MESSAGE],
        checkpoint_time=metadata.get("annotations", {}).get(names.Annotation.LAST_CHECKPOINT, ""),
        pulls=metadata.get("annotations", {}).get(names.Annotation.PULLS, ""),
        nodes=_number(labels.get(names.Label.NODES)),
        epoch=_number(labels.get(names.Label.EPOCH)),
        container=begins.get("name", ""),
        node_ready=health.ready,
        node_not_ready_since=health.not_ready_since,
    )


def expected_training_pods(run: TrainingRun, status: TrainingRunStatus, *, ended: bool = False) -> Iterator[str]:
    """Yields the names of the pods that were there, by a run's status, and whose end is not accounted for.

    `ended`: instead, those of the last attempt of each instance that will have another.
    """
    for entry in status.stages:
        attempt, last_ended = entry.attempt, entry.ended_attempt
        over = entry.phase in (RunPhase.SUCCEEDED, RunPhase.FAILED)
        created = entry.restart_state is not None and entry.restart_state.created
        if (0 < attempt == last_ended and not over) if ended else (created and attempt > last_ended):
            for rank in range(run.nodes):
                yield names.training_pod_name(run.identity.name, entry.name, entry.seed, attempt, rank)
    drive = status.closed_loop.drive if status.closed_loop else None
    if drive is not None and drive.created and drive.phase == DRIVING and not ended:
        yield names.closed_loop_pod_name(run.identity.name, drive.attempt)


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
    """Returns whether a claim is one that runs share under a name."""
    return bool(claim["metadata"].get("labels", {}).get(names.Label.SHARED_CLAIM) == name)


def _waits_for_volumes(pod: KubernetesObject, now: datetime) -> dict[str, str]:
    """Returns a reason to wait for a pod that has long been without a sandbox: the cause is only in an event.

    Kubernetes pulls images only when the sandbox is there, so that a slow pull is not taken for a missing Secret.
    """
    scheduled = parse_time(condition(pod, "PodScheduled").get("lastTransitionTime"))
    begun = condition(pod, "PodReadyToStartContainers").get("status") != "False"
    if begun or scheduled is None or (now - scheduled).total_seconds() < MOUNTED_AFTER_S:
        return {}
    sources = pod.get("spec", {}).get("volumes", [])
    named = [f"Secret {each['secret'].get('secretName', '')}" for each in sources if "secret" in each]
    named += [f"claim {each[VOLUME_CLAIM]['claimName']}" for each in sources if VOLUME_CLAIM in each]
    text = f"its volumes or its network are not there after {MOUNTED_AFTER_S:.0f} s; it mounts {', '.join(named)}"
    return {"reason": "FailedMount", "message": text} if named else {}


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS else 0
