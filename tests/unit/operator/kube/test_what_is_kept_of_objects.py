"""Of a thousand runs and their pods the operator keeps what it reads, and equal words once."""

import json
from typing import Any, cast

import pytest

from lead_operator.kube.client import KubeClient
from lead_operator.kube.copies import NodeWatch, trim_pod
from lead_operator.kube.informer import Informer
from lead_operator.kube.kinds import NODE, POD, TRAINING_RUN
from lead_operator.kube.observe import observe_pod
from lead_testing.makers import NOW, a_run_body

MOMENT = "2026-01-01T12:00:00Z"
STATES = (
    {"running": {"startedAt": MOMENT}},
    {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}},
    {"terminated": {"exitCode": 137, "reason": "OOMKilled", "startedAt": MOMENT, "finishedAt": MOMENT, "message": "x"}},
)


def a_pod_body(state: dict[str, Any], conditions: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns a pod as the API server holds it, with much that nobody here reads."""
    times = {"lastProbeTime": None, "lastTransitionTime": MOMENT, "observedGeneration": 1}
    container = {
        "name": "trainer", "state": state, "lastState": {}, "ready": True, "started": True, "restartCount": 0,
        "image": "trainer:1", "imageID": "sha256:1", "containerID": "containerd://1",
    }  # fmt: skip
    return {
        "metadata": {
            "name": "a", "namespace": "team-a", "uid": "u", "resourceVersion": "7", "creationTimestamp": MOMENT,
            "labels": {"lead.dev/role": "train", "lead.dev/rank": "1"}, "annotations": {"note": "long"},
            "managedFields": [{"manager": "kubelet"}],
        },
        "spec": {"nodeName": "node-1", "containers": [{"name": "trainer", "image": "trainer:1"}]},
        "status": {
            "phase": "Running", "hostIP": "10.0.0.1", "podIP": "10.0.0.2", "qosClass": "Burstable",
            "conditions": [each | times for each in conditions],
            "containerStatuses": [container, container | {"name": "istio-proxy", "state": STATES[0]}],
        },
    }  # fmt: skip


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    "conditions",
    [
        [{"type": "Ready", "status": "True"}, {"type": "ContainersReady", "status": "True"}],
        [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}],
        [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}],
    ],
)
def test_a_trimmed_pod_is_observed_as_the_whole_one(state: dict[str, Any], conditions: list[dict[str, Any]]) -> None:
    body, nodes = a_pod_body(state, conditions), NodeWatch(Informer(cast(KubeClient, None), NODE, ""))
    assert observe_pod(trim_pod(body), nodes, NOW) == observe_pod(body, nodes, NOW)


def test_nothing_is_kept_of_a_pod_that_is_not_read() -> None:
    body = a_pod_body(STATES[0], [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True"}])
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": MOMENT}
    assert trim_pod(body)["status"] == {
        "phase": "Running",
        "conditions": [ready],
        "containerStatuses": [{"name": "trainer", "state": STATES[0]}, {"name": "istio-proxy", "state": STATES[0]}],
    }
    assert "annotations" not in trim_pod(body)["metadata"] and "containers" not in trim_pod(body)["spec"]


WAITING = {"waiting": {"reason": "PodInitializing"}}
GOOD = {"terminated": {"exitCode": 0, "reason": "Completed"}}
NO_IMAGE = {"waiting": {"reason": "ErrImageNeverPull", "message": "not present"}}
CRASHED = {"terminated": {"exitCode": 3, "reason": "Error", "message": "no GPU", "finishedAt": MOMENT}}


@pytest.mark.parametrize(
    ("fetch", "simulate", "main", "phase", "seen"),
    [
        (GOOD, NO_IMAGE, WAITING, "Pending", ("simulate", "ErrImageNeverPull", None, "")),
        (GOOD, CRASHED, WAITING, "Failed", ("simulate", "", 3, "no GPU")),
        (CRASHED, WAITING, WAITING, "Failed", ("fetch", "", 3, "no GPU")),
        (GOOD, GOOD, CRASHED, "Failed", ("", "", 3, "no GPU")),
    ],
)
def test_of_a_pod_with_our_init_containers_the_one_is_seen_that_counts(
    fetch: dict[str, Any], simulate: dict[str, Any], main: dict[str, Any], phase: str, seen: tuple[object, ...]
) -> None:
    """Others that were added at admission are not taken for ours."""
    body = a_pod_body(main, [])
    inits = (("istio-init", CRASHED), ("fetch", fetch), ("simulate", simulate))
    body["status"] |= {
        "phase": phase,
        "containerStatuses": [{"name": "lead", "state": main}],
        "initContainerStatuses": [{"name": name, "state": state} for name, state in inits],
    }
    nodes = NodeWatch(Informer(cast(KubeClient, None), NODE, ""))
    pod = observe_pod(trim_pod(body), nodes, NOW)
    assert pod == observe_pod(body, nodes, NOW)
    assert (pod.container, pod.waiting_reason, pod.exit_code, pod.message, pod.phase) == (*seen, phase)


@pytest.mark.parametrize(("kind", "body"), [(POD, a_pod_body(STATES[1], [])), (TRAINING_RUN, a_run_body())])
def test_equal_words_of_two_objects_are_kept_once(kind: Any, body: dict[str, Any]) -> None:
    informer = Informer(cast(KubeClient, None), kind, "")
    for name in ("a", "b"):
        metadata = body["metadata"] | {"name": name, "resourceVersion": "7"}
        informer.note_own_write(json.loads(json.dumps(body | {"metadata": metadata})))
    first, second = (informer.get("team-a", name) for name in ("a", "b"))
    assert first is not None and second is not None and first["metadata"]["name"] == "a"
    assert [id(word) for word in words(first)] == [id(word) for word in words(second)]


def words(value: Any) -> list[str]:
    """Returns every word of an object but its name, in order."""
    if isinstance(value, dict):
        return [word for key, entry in value.items() if key != "name" for word in words(entry)]
    if isinstance(value, list):
        return [word for entry in value for word in words(entry)]
    return [value] if isinstance(value, str) else []
