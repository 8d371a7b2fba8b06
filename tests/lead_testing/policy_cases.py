"""What the chart's default policy refuses: one table, asked of the operator's decisions and of the API server alike."""

from dataclasses import dataclass
from typing import Any

from lead_testing.manifests import a_dataset_cache, a_training_run


@dataclass(frozen=True)
class Refused:
    """A manifest of namespace team-a, and what a refusal has to name: the field, what was found, what to set."""

    id: str
    manifest: dict[str, Any]
    field: str
    found: str
    remedy: str


def _overrides(**given: Any) -> dict[str, Any]:
    return a_training_run("x", "town", podOverrides=given)


def _scheduling(**given: str) -> dict[str, Any]:
    return a_training_run("x", "town", scheduling=given)


def _limits(**given: Any) -> dict[str, Any]:
    return a_training_run("x", "town", resources={"limits": given})


def _build(**given: Any) -> dict[str, Any]:
    return a_dataset_cache("x", "datasets/team-a/town", build=given)


def _stages(*given: dict[str, Any]) -> dict[str, Any]:
    return _build(stages=[{"name": f"stage{number}", **each} for number, each in enumerate(given)])


def _loop(**given: Any) -> dict[str, Any]:
    return a_training_run("x", "town", closedLoop={"image": "docker.io/lead/carla:1", "command": ["drive"], **given})


REFUSED_RUNS = [
    Refused(f"annotation {key}", _overrides(annotations={key: "x"}), "annotations", key, "policy.allowedAnnotations")
    for key in ("iam.amazonaws.com/role", "k8s.v1.cni.cncf.io/networks", "sidecar.istio.io/inject")
] + [
    Refused(f"label {key}", _overrides(labels={key: "x"}), "labels", key, "policy.allowedLabels")
    for key in ("azure.workload.identity/use", "app", "team")
] + [
    Refused("a PriorityClass", _scheduling(priorityClassName="high"), "priorityClassName", "high",
            "policy.allowedPriorityClasses"),
    Refused("a scheduler", _scheduling(schedulerName="mine"), "schedulerName", "mine", "policy.allowedSchedulers"),
    Refused("a node's label", _overrides(nodeSelector={"role": "infra"}), "nodeSelector", "role",
            "policy.allowedNodeSelectors"),
    Refused("a taint", _overrides(tolerations=[{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]),
            "tolerations", "node-role.kubernetes.io/control-plane", "policy.allowedTolerations"),
    Refused("a storage class", a_training_run("x", "town", sessionCache={
        "medium": "PersistentVolume", "storageClassName": "gold"}), "storageClassName", "gold",
        "policy.allowedStorageClasses"),
    Refused("a device", _limits(**{"smarter-devices/fuse": 1}), "spec.resources", "smarter-devices/fuse",
            "policy.allowedResources"),
    Refused("many GPUs", _limits(**{"nvidia.com/gpu": 17}), "spec.resources", "17", "policy.maxGpusPerPod"),
    Refused("a thousand GPUs, written shortly", _limits(**{"nvidia.com/gpu": "1k"}), "spec.resources", "1000",
            "policy.maxGpusPerPod"),
    Refused("many nodes", a_training_run("x", "town", nodes=65), "spec.nodes", "65", "policy.maxNodes"),
    Refused("many pods", a_training_run("x", "town", nodes=33, parallelism=2), "spec.nodes x spec.parallelism", "66",
            "policy.maxPodsPerRun"),
]  # fmt: skip
REFUSED_CACHES = [
    Refused("a claim", a_dataset_cache("x", "", source={"claimName": "postgres-data"}), "spec.source.claimName",
            "postgres-data", "policy.allowedClaims"),
    Refused("a node's label for a build", _build(nodeSelector={"role": "infra"}), "nodeSelector", "role",
            "policy.allowedNodeSelectors"),
    Refused("a taint for a build", _build(tolerations=[{"key": "infra"}]), "tolerations", "infra",
            "policy.allowedTolerations"),
    Refused("a device for a build", _build(resources={"limits": {"smarter-devices/kvm": 1}}), "spec.build.resources",
            "smarter-devices/kvm", "policy.allowedResources"),
    Refused("many GPUs for a build", _build(resources={"limits": {"nvidia.com/gpu": 20}}), "spec.build.resources", "20",
            "policy.maxGpusPerPod"),
    Refused("a device for a stage", _stages({"resources": {"requests": {"smarter-devices/kvm": 1}}}),
            "spec.build.stages", "smarter-devices/kvm", "policy.allowedResources"),
    Refused("many GPUs for a stage", _stages({}, {"resources": {"limits": {"nvidia.com/gpu": 17}}}),
            "spec.build.stages", "17", "policy.maxGpusPerPod"),
    Refused("many pods for stages", _stages({"workers": 33}, {"workers": 32}), "spec.build.stages", "65",
            "policy.maxBuildPods"),
]  # fmt: skip
REFUSED_LOOPS = [
    Refused("an image", _loop(image="docker.io/carla:1"), "spec.closedLoop.image", "docker.io/carla:1",
            "policy.allowedImages"),
    Refused("a device of a simulator", _loop(resources={"limits": {"smarter-devices/fuse": 1}}),
            "a resource of spec.closedLoop.resources", "smarter-devices/fuse", "policy.allowedResources"),
    Refused("many GPUs of a simulator", _loop(resources={"limits": {"nvidia.com/gpu": 17}}),
            "devices of spec.closedLoop.resources", "17", "policy.maxGpusPerPod"),
    Refused("routes of another team", _loop(routes={"prefix": "weights/team-b/routes"}),
            "spec.closedLoop.routes.prefix", "weights/team-b/routes", "storage.profiles.default.shared"),
    Refused("raw data as routes", _loop(routes={"prefix": "datasets/team-a/routes"}),
            "spec.closedLoop.routes.prefix", "datasets/team-a/routes", "storage.profiles.default.shared"),
]  # fmt: skip
# Never, whatever the lists say.
SYSTEM_PRIORITY = _scheduling(priorityClassName="system-node-critical")
STORES_CLAIM = a_dataset_cache("x", "", source={"claimName": "data-lead-minio-0"})
RESERVED = [a_dataset_cache("x", f"{first}/team-a/town") for first in ("runs", "caches", "builds", "control")]
ANOTHER_TEAMS = a_dataset_cache("x", "datasets/team-b/town")
