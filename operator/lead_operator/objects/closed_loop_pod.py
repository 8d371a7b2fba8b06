"""The pod that drives with a run's newest weights: dataclass in, Kubernetes dict out; no client, no clock.

Three containers, one after another: `fetch` (trainer image) copies weights and routes, `simulate` (the user's image and
command) drives, and the main one (trainer image) publishes the results. What a user typed reaches `simulate` alone,
which mounts neither job, credentials nor token, and sees weights and routes read-only.
"""

from dataclasses import dataclass
from typing import Any

from lead_operator import names
from lead_operator.objects.pod_skeleton import (
    HOME_ENV,
    EnvVar,
    KubernetesObject,
    PodParts,
    bounded_resources,
    build_pod,
)
from lead_operator.objects.training_pod import parse_checkpoint_uri
from lead_operator.resources.closed_loop import ClosedLoop
from lead_operator.resources.pod_settings import ComputeResources, PodSettings
from lead_operator.resources.training_run import TrainingRun
from lead_operator.settings import Settings, StorageProfile
from lead_protocol import environment
from lead_protocol.job import ClosedLoopJob, OwnerIdentity

FETCH, SIMULATE = "fetch", "simulate"  # names of its init containers, in this order
GRACE_PERIOD_S = 30
_HANDLING = ComputeResources(requests={"cpu": "100m", "memory": "1Gi"}, limits={"memory": "4Gi"})


@dataclass(frozen=True)
class Target:
    """The weights to drive with, and who asked for it."""

    stage: str
    seed: int
    epoch: int
    step: int
    uri: str  # of the checkpoint, as status.stages[].checkpoint shows it
    requested: str = ""


def build_closed_loop_pod(
    run: TrainingRun, wanted: ClosedLoop, target: Target, *, attempt: int, profile: StorageProfile, settings: Settings
) -> KubernetesObject:
    """Returns the pod of one attempt; raises SpecError where the checkpoint lies elsewhere."""
    identity = run.identity
    disk = settings.pod_disk
    bundle = {"name": "bundle", "emptyDir": {"sizeLimit": disk.scratch}}
    results = {"name": "results", "emptyDir": {"sizeLimit": disk.scratch}}
    # Its own: what it left in the HOME of the next container would be run there, with that one's credentials.
    tmp = {"name": "simulate-tmp", "emptyDir": {"sizeLimit": disk.tmp}}
    pod = build_pod(
        PodParts(
            name=names.closed_loop_pod_name(identity.name, attempt),
            owner=identity,
            job=_job(run, wanted, target, attempt, profile),
            profile=profile,
            settings=settings,
            resources=_HANDLING,
            # Its labels and annotations name the run's pods to a gang scheduler, which would count this one as a rank.
            pod_settings=PodSettings(run.pod_settings.node_selector, run.pod_settings.tolerations),
            grace_period_s=GRACE_PERIOD_S,
            labels=_labels(run, target, attempt),
            env=(_step("publish"), _pod_uid(), *_places(wanted, target, attempt)),
            volumes=(bundle, results, tmp, {"name": "shm", "emptyDir": {"medium": "Memory"}}),
            volume_mounts=(_mount("results", environment.CLOSED_LOOP_RESULTS_DIR, read_only=True),),
            disk_besides=(disk.scratch, disk.scratch, disk.tmp),
            spec={"activeDeadlineSeconds": wanted.timeout_s, **_scheduling(run)},
        )
    )
    publish = pod["spec"]["containers"][0]
    kept = [mount for mount in publish["volumeMounts"] if mount["name"] != "results"]
    fetch = {
        **publish,
        "name": FETCH,
        "env": [_step("fetch") if each["name"] == environment.CLOSED_LOOP_STEP else each for each in publish["env"]],
        "volumeMounts": [*kept, _mount("bundle", environment.CLOSED_LOOP_BUNDLE_DIR)],
    }
    pod["spec"]["initContainers"] = [fetch, _simulate(wanted, target, attempt, settings)]
    return pod


def _simulate(wanted: ClosedLoop, target: Target, attempt: int, settings: Settings) -> dict[str, Any]:
    disk = settings.pod_disk
    return {
        "name": SIMULATE,
        "image": wanted.image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(wanted.command),
        "env": [*HOME_ENV, *_places(wanted, target, attempt)],
        "resources": bounded_resources(wanted.resources, settings, (disk.scratch, disk.scratch, disk.tmp)),
        # Simulators write beside their programs: its root file system is its own, and ends with it.
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "terminationMessagePath": environment.TERMINATION_LOG,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            _mount("bundle", environment.CLOSED_LOOP_BUNDLE_DIR, read_only=True),
            _mount("results", environment.CLOSED_LOOP_RESULTS_DIR),
            _mount("simulate-tmp", "/tmp"),
            _mount("shm", "/dev/shm"),
        ],
    }


def _places(wanted: ClosedLoop, target: Target, attempt: int) -> list[EnvVar]:
    values = {
        environment.CLOSED_LOOP_CHECKPOINT: environment.CLOSED_LOOP_CHECKPOINT_DIR,
        environment.CLOSED_LOOP_RESULTS: environment.CLOSED_LOOP_RESULTS_DIR,
        environment.CLOSED_LOOP_ROUTES: environment.CLOSED_LOOP_ROUTES_DIR if wanted.routes_prefix else "",
        environment.CLOSED_LOOP_SEED: str(target.seed),
        environment.CLOSED_LOOP_EPOCH: str(target.epoch),
        environment.CLOSED_LOOP_ATTEMPT: str(attempt),
    }
    return [{"name": name, "value": value} for name, value in values.items()]


def _job(
    run: TrainingRun, wanted: ClosedLoop, target: Target, attempt: int, profile: StorageProfile
) -> ClosedLoopJob:  # fmt: skip
    identity = run.identity
    named = parse_checkpoint_uri(
        target.uri, field="status.stages[].checkpoint.uri", owner=str(identity), namespace=identity.namespace,
        profile=profile,
    )  # fmt: skip
    return ClosedLoopJob(
        owner=OwnerIdentity(namespace=identity.namespace, name=identity.name, uid=identity.uid),
        stage=target.stage,
        seed=target.seed,
        attempt=attempt,
        epoch=target.epoch,
        step=target.step,
        checkpoint_prefix=named.checkpoint_prefix,
        routes_prefix=wanted.routes_prefix.rstrip("/"),
        request=target.requested,
    )


def _labels(run: TrainingRun, target: Target, attempt: int) -> dict[str, str]:
    labels = {
        names.Label.COMPONENT: "closed-loop",
        names.Label.ROLE: names.Role.CLOSED_LOOP.value,
        names.Label.RUN: names.label_value(run.identity.name),
        names.Label.STAGE: target.stage,
        names.Label.SEED: str(target.seed),
        names.Label.EPOCH: str(target.epoch),
        names.Label.ATTEMPT: str(attempt),
    }
    if run.scheduling.queue:  # a queue admits it alone: its devices count against the quota too
        labels[names.Label.QUEUE_NAME] = run.scheduling.queue
    return labels


def _scheduling(run: TrainingRun) -> dict[str, str]:
    found = {"schedulerName": run.scheduling.scheduler, "priorityClassName": run.scheduling.priority_class}
    return {key: value for key, value in found.items() if value}


def _step(name: str) -> EnvVar:
    return {"name": environment.CLOSED_LOOP_STEP, "value": name}


def _pod_uid() -> EnvVar:
    return {"name": environment.POD_UID, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}


def _mount(volume: str, path: str, *, read_only: bool = False) -> dict[str, Any]:
    mount: dict[str, Any] = {"name": volume, "mountPath": path}
    return {**mount, "readOnly": True} if read_only else mount
