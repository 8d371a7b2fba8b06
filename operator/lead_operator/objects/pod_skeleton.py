"""What all pods have in common: the security wall, the job file, the store, the writable folders.

Nothing a user typed becomes part of an argv, a shell line or an environment variable: it travels as one JSON
annotation that the downward API mounts as a file. (The one container that runs a user's own image and command is made
in `closed_loop_pod`.) Only who installs the chart adds variables. The pod satisfies the restricted Pod Security
Standard.
"""

import math
from dataclasses import dataclass, field
from typing import Any

from lead_operator import names
from lead_operator.errors import SpecError
from lead_operator.objects.store_access import NoStoreAccess, StoreAccess
from lead_operator.resources.body import Identity, parse_quantity
from lead_operator.resources.pod_settings import EPHEMERAL_STORAGE, ComputeResources, PodSettings
from lead_operator.settings import Settings, StorageProfile
from lead_protocol import environment
from lead_protocol.job import AnyJob, BuildJob, CheckJob

CONTAINER_NAME = "lead"
ARGUMENTS = ["pod"]  # of the image's entry point: tini as process 1, so that SIGTERM arrives, then `lead`
LOGS = "1Gi"  # of a container; the kubelet rotates them long before
MAX_JOB_BYTES = 200 * 1024  # the API server takes 256 KiB of annotations in all

EnvVar = dict[str, Any]
KubernetesObject = dict[str, Any]
HOME_ENV: tuple[EnvVar, ...] = ({"name": "HOME", "value": "/tmp"}, {"name": "PYTHONUNBUFFERED", "value": "1"})


@dataclass(frozen=True)
class PodParts:
    """What differs between pods."""

    name: str
    owner: Identity
    job: AnyJob
    profile: StorageProfile
    settings: Settings
    resources: ComputeResources
    pod_settings: PodSettings
    grace_period_s: int
    labels: dict[str, str]
    annotations: dict[str, str] = field(default_factory=dict)
    env: tuple[EnvVar, ...] = ()
    volumes: tuple[dict[str, Any], ...] = ()
    volume_mounts: tuple[dict[str, Any], ...] = ()
    disk_besides: tuple[str, ...] = ()  # sizes of further volumes on the node's disk
    spec: dict[str, Any] = field(default_factory=dict)  # further fields of the pod spec

    @property
    def store(self) -> StoreAccess:
        """How the pod reaches its store."""
        if isinstance(self.job, CheckJob):
            return NoStoreAccess(self.profile, self.owner.namespace, "run")
        role = "build" if isinstance(self.job, BuildJob) else "run"
        return StoreAccess(self.profile, self.owner.namespace, role)


def build_pod(parts: PodParts) -> KubernetesObject:
    """Returns the complete pod; raises SpecError where the configuration is too large for one pod."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": parts.name,
            "namespace": parts.owner.namespace,
            "labels": {**parts.pod_settings.labels, **common_labels(parts.owner), **parts.labels},
            "annotations": {
                **parts.pod_settings.annotations,
                **parts.annotations,
                names.Annotation.PULLS: parts.settings.pulls,
                environment.JOB_ANNOTATION: _job_text(parts),
            },
            "ownerReferences": [owner_reference(parts.owner)],
        },
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "serviceAccountName": parts.store.service_account(parts.settings),
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": parts.grace_period_s,
            "securityContext": {
                "runAsNonRoot": True,
                **parts.settings.pod_security.context(),
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            **_optional("nodeSelector", parts.pod_settings.node_selector),
            **_optional("tolerations", [dict(t) for t in parts.pod_settings.tolerations]),
            **parts.spec,
            "containers": [_container(parts)],
            "volumes": _volumes(parts),
        },
    }


def owner_reference(owner: Identity) -> dict[str, Any]:
    """Returns the reference by which the garbage collector removes a child with its owner."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def common_labels(owner: Identity) -> dict[str, str]:
    """Returns the labels that every child of any kind carries."""
    return {
        names.Label.APP: names.APP_NAME,
        names.Label.MANAGED_BY: names.FIELD_MANAGER,
        names.Label.OWNER_UID: owner.uid,
    }


def fits_a_pod(job: AnyJob) -> bool:
    """Returns whether a pod can hold a job."""
    return len(job.model_dump_json().encode()) <= MAX_JOB_BYTES


def _job_text(parts: PodParts) -> str:
    text = parts.job.model_dump_json()
    if len(text.encode()) > MAX_JOB_BYTES:
        raise SpecError(
            f"{parts.owner}: the configuration is {len(text.encode())} bytes as JSON, expected at most "
            f"{MAX_JOB_BYTES}; move large values into the recipe's preset or the dataset"
        )
    return text


def _container(parts: PodParts) -> dict[str, Any]:
    return {
        "name": CONTAINER_NAME,
        "image": parts.settings.trainer_image,
        "imagePullPolicy": parts.settings.trainer_pull_policy,
        "args": list(ARGUMENTS),
        "env": [*parts.store.env, *HOME_ENV, *parts.env, *_administrators_env(parts.settings)],
        "resources": bounded_resources(parts.resources, parts.settings, parts.disk_besides),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "terminationMessagePath": environment.TERMINATION_LOG,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "job", "mountPath": environment.JOB_FILE.rsplit("/", 1)[0], "readOnly": True},
            *parts.store.mounts,
            {"name": "scratch", "mountPath": environment.SCRATCH_DIR},
            {"name": "tmp", "mountPath": "/tmp"},
            *parts.volume_mounts,
        ],
    }


def bounded_resources(resources: ComputeResources, settings: Settings, besides: tuple[str, ...]) -> dict[str, Any]:
    """Returns what a spec requests; without ephemeral-storage in it, the sum of the pod's volumes."""
    requests, limits, disk = dict(resources.requests), dict(resources.limits), settings.pod_disk
    if EPHEMERAL_STORAGE not in limits:
        whole = sum(map(parse_quantity, (disk.scratch, disk.tmp, LOGS, *besides)))
        asked = parse_quantity(requests.get(EPHEMERAL_STORAGE, "0"))
        limits[EPHEMERAL_STORAGE] = str(math.ceil(max(whole, asked)))
    if EPHEMERAL_STORAGE not in requests:  # Kubernetes would take the limit
        least = min(parse_quantity(disk.request), parse_quantity(limits[EPHEMERAL_STORAGE]))
        requests[EPHEMERAL_STORAGE] = disk.request if least == parse_quantity(disk.request) else f"{least:.0f}"
    return {"requests": requests, "limits": limits}


def _administrators_env(settings: Settings) -> list[EnvVar]:
    return [{"name": name, "value": value} for name, value in sorted(settings.pod_environment.items())]


def _volumes(parts: PodParts) -> list[dict[str, Any]]:
    disk = parts.settings.pod_disk
    job_path = environment.JOB_FILE.rsplit("/", 1)[1]
    job_field = {"fieldPath": f"metadata.annotations['{environment.JOB_ANNOTATION}']"}
    return [
        {"name": "job", "downwardAPI": {"items": [{"path": job_path, "fieldRef": job_field}]}},
        *parts.store.volumes,
        {"name": "scratch", "emptyDir": {"sizeLimit": parts.resources.disk_limit or disk.scratch}},
        {"name": "tmp", "emptyDir": {"sizeLimit": parts.resources.disk_limit or disk.tmp}},
        *parts.volumes,
    ]


def _optional(key: str, value: Any) -> dict[str, Any]:
    return {key: value} if value else {}
