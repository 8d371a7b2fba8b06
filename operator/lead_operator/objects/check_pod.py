"""The pod that has a run's recipe judge its configuration: dataclass in, Kubernetes dict out; no client, no clock.

It is small, asks for no GPU, mounts no credentials and reaches no network. No queue holds it, so that it answers while
the run waits for its turn.
"""

from lead_operator import names
from lead_operator.objects.pod_skeleton import KubernetesObject, PodParts, build_pod
from lead_operator.objects.training_pod import build_check_job
from lead_operator.resources.body import parse_quantity
from lead_operator.resources.pod_settings import ComputeResources, PodSettings
from lead_operator.resources.training_run import TrainingRun
from lead_operator.settings import Settings, StorageProfile

START_WITHIN_S = 600  # from its creation: it has to be scheduled, and its image pulled
ACTIVE_S = 300  # from the start of its container: the model is made once, on a CPU; one that hangs gives no answer
GRACE_PERIOD_S = 1
CPU, MEMORY = "100m", "1Gi"
MOST_CPU, MOST_MEMORY = "1", "4Gi"


def build_check_pod(run: TrainingRun, key: str, *, profile: StorageProfile, settings: Settings) -> KubernetesObject:
    """Returns the pod; `key` identifies the configuration and the image within the run."""
    identity = run.identity
    return build_pod(
        PodParts(
            name=names.check_pod_name(identity.name, key),
            owner=identity,
            job=build_check_job(run),
            profile=profile,
            settings=settings,
            resources=_resources(run),
            # Its labels and annotations name the run's pods to a gang scheduler, which would count this one as a rank.
            pod_settings=PodSettings(run.pod_settings.node_selector, run.pod_settings.tolerations),
            grace_period_s=GRACE_PERIOD_S,
            labels={
                names.Label.COMPONENT: "config-check",
                names.Label.ROLE: names.Role.CHECK.value,
                names.Label.RUN: names.label_value(identity.name),
            },
            env=({"name": "OMP_NUM_THREADS", "value": "1"},),
            # The kubelet counts from before the image is pulled: this ends a pod without an operator.
            spec={"activeDeadlineSeconds": START_WITHIN_S + ACTIVE_S},
        )
    )


def _resources(run: TrainingRun) -> ComputeResources:
    """Returns small ones, and never more than a pod of the run gets."""
    asked, limits = run.resources.requests, run.resources.limits
    return ComputeResources(
        requests={
            "cpu": _least(CPU, asked.get("cpu"), limits.get("cpu")),
            "memory": _least(MEMORY, asked.get("memory"), limits.get("memory")),
        },
        limits={"cpu": _least(MOST_CPU, limits.get("cpu")), "memory": _least(MOST_MEMORY, limits.get("memory"))},
    )


def _least(*quantities: str | None) -> str:
    return min((quantity for quantity in quantities if quantity), key=parse_quantity)
