"""Bodies of the API server as the model of the pages; pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from lead_operator.kube.kinds import KubernetesObject
from lead_operator.names import Condition as Types
from lead_operator.names import Label, Role
from lead_operator.resources.dataset_cache_status import DatasetCacheStatus
from lead_operator.resources.status_format import ConditionStatus, ResourceStatus, parse_status
from lead_operator.resources.training_run_status import InstanceStatus, TrainingRunStatus
from lead_protocol.object_keys import InstanceKeys, instance_name
from lead_ui.cluster.watched import event_time
from lead_ui.model import CacheRow, Condition, Event, Instance, Pod, RunKey, RunRow

BAD_IF_TRUE = {Types.FAILED, Types.SOURCE_DRIFT, Types.SESSION_CACHE_DEGRADED, Types.ADVISORY}
BAD_IF_FALSE = {Types.ACCEPTED, Types.CONFIG_CHECKED, Types.STORAGE_AVAILABLE, Types.CHECKPOINTS_VALID}


def run_status(body: KubernetesObject) -> TrainingRunStatus:
    """Returns a run's status as far as it is one."""
    return parse_status(TrainingRunStatus, body.get("status") or {})


def cache_status(body: KubernetesObject) -> DatasetCacheStatus:
    """Returns a cache's status as far as it is one."""
    return parse_status(DatasetCacheStatus, body.get("status") or {})


def run_row(body: KubernetesObject) -> RunRow:
    """Returns a run's line of the table."""
    metadata, spec, status = body["metadata"], body.get("spec") or {}, run_status(body)
    display = status.display
    current = max((each for each in status.stages if each.progress), key=lambda each: each.attempt, default=None)
    advice = status.condition(Types.ADVISORY)
    return RunRow(
        key=RunKey(metadata.get("namespace", ""), metadata["name"]),
        recipe=str(spec.get("recipe", "")),
        preset=str(spec.get("preset", "")),
        phase=status.phase or "Pending",
        reason=status.reason,
        stage=display.stage if display else "",
        epoch=display.epoch if display else "",
        percent=current.progress.percent if current and current.progress else None,
        loss=display.loss if display else "",
        rate=display.rate if display else "",
        eta=display.eta if display else "",
        checkpoint_time=(display.checkpoint_time or "") if display else "",
        restarts=status.restarts.total if status.restarts else 0,
        created=metadata.get("creationTimestamp", ""),
        advisories=(advice.message,) if advice is not None and advice.status == "True" else (),
    )


def cache_row(body: KubernetesObject) -> CacheRow:
    """Returns a cache's line of the table."""
    metadata, spec, status = body["metadata"], body.get("spec") or {}, cache_status(body)
    display = status.display
    return CacheRow(
        key=RunKey(metadata.get("namespace", ""), metadata["name"]),
        recipe=str(spec.get("recipe", "")),
        phase=status.phase or "Pending",
        reason=status.reason,
        routes=display.routes if display else "",
        samples=status.samples,
        size_bytes=status.size_bytes,
        shards=display.shards if display else "",
        rate=display.rate if display else "",
        eta=display.eta if display else "",
        digest=status.digest,
        used_by=status.used_by,
        created=metadata.get("creationTimestamp", ""),
    )


def conditions_of(status: ResourceStatus) -> tuple[Condition, ...]:
    """Returns the conditions, those that need somebody first."""
    found = [_condition(each) for each in status.conditions]
    return tuple(sorted(found, key=lambda each: not each.is_bad))


def _condition(each: ConditionStatus) -> Condition:
    is_bad = (each.status == "True" and each.type in BAD_IF_TRUE) or (
        each.status == "False" and each.type in BAD_IF_FALSE
    )
    return Condition(
        type=each.type,
        status=each.status,
        reason=each.reason,
        message=each.message,
        since=each.last_transition_time,
        is_bad=is_bad,
    )


def message_of(status: ResourceStatus) -> str:
    """Returns the sentence that explains a phase: of the condition whose reason is the status's."""
    return next((each.message for each in status.conditions if each.reason == status.reason and each.message), "")


def events_of(bodies: Iterable[KubernetesObject]) -> tuple[Event, ...]:
    """Returns events of the API server as the page lists them."""
    return tuple(
        Event(
            time=event_time(body),
            type=str(body.get("type", "")),
            reason=str(body.get("reason", "")),
            message=str(body.get("message", "")),
            count=int((body.get("series") or {}).get("count") or body.get("count") or 1),
        )
        for body in bodies
    )


def pods_of(bodies: Sequence[KubernetesObject]) -> tuple[Pod, ...]:
    """Returns pods, those of the newest attempts first."""
    found = [_pod(body) for body in bodies]
    return tuple(sorted(found, key=lambda pod: (-pod.attempt, pod.instance, pod.rank or 0, pod.name)))


def _pod(body: KubernetesObject) -> Pod:
    metadata, status = body["metadata"], body["status"]
    labels: Mapping[str, str] = metadata.get("labels") or {}
    stage, seed, attempt, rank = (labels.get(name, "") for name in (Label.STAGE, Label.SEED, Label.ATTEMPT, Label.RANK))
    is_one = labels.get(Label.ROLE) == Role.TRAIN and stage and seed.lstrip("-").isdigit()
    return Pod(
        name=metadata["name"],
        node=body["spec"]["nodeName"],
        phase=str(status.get("phase", "")),
        role=labels.get(Label.ROLE, ""),
        instance=instance_name(stage, int(seed)) if is_one else "",
        attempt=int(attempt) if attempt.isdigit() else 0,
        rank=int(rank) if rank.isdigit() else None,
        began=str(status.get("startTime") or metadata.get("creationTimestamp", "")),
        reason=_why(status),
    )


def _why(status: KubernetesObject) -> str:
    """Returns why a pod waits or has ended, by its containers and conditions."""
    if status.get("reason"):
        return f"{status['reason']}: {status.get('message', '')}".rstrip(": ")
    for container in status.get("containerStatuses") or []:
        state = container.get("state") or {}
        if ended := state.get("terminated"):
            code = ended.get("exitCode")
            return f"{ended.get('reason', '')}, exit code {code}" if code else ""
        if waiting := state.get("waiting"):
            return f"{waiting.get('reason', '')}: {waiting.get('message', '')}".rstrip(": ")
    for each in status.get("conditions") or []:
        if each.get("status") == "False" and each.get("message") and each.get("type") == "PodScheduled":
            return str(each["message"])
    return ""


def parents_of(spec: Mapping[str, Any]) -> dict[str, str]:
    """Returns by stage the stage whose weights it begins with."""
    stages = [stage for stage in spec.get("stages") or [] if isinstance(stage, dict)]
    return {str(stage.get("name", "")): str((stage.get("initFrom") or {}).get("stage", "")) for stage in stages}


def instance_of(entry: InstanceStatus, keys: InstanceKeys, parent: str) -> Instance:
    """Returns a stage instance as the status has it, for when its records cannot be read."""
    progress = entry.progress
    return Instance(
        keys=keys,
        stage=entry.name,
        seed=entry.seed,
        phase=entry.phase,
        attempt=entry.attempt,
        epoch=progress.epoch if progress else 0,
        epochs=progress.epochs if progress else 0,
        step=(progress.step or 0) if progress else 0,
        steps=(progress.steps or 0) if progress else 0,
        best=entry.best,
        parent=parent,
    )


def manifest_text(body: KubernetesObject, api_version: str, kind: str) -> str:
    """Returns what was applied, as YAML: without status and what the server adds."""
    metadata = {key: body["metadata"][key] for key in ("name", "namespace") if key in body["metadata"]}
    document = {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": body.get("spec") or {}}
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)
