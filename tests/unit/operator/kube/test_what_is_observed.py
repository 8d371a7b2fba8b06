"""What the operator makes of bodies from the API server before it decides anything."""

import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lead_operator.controllers.manager import Manager
from lead_operator.decisions.observed import ObservedClaim
from lead_operator.decisions.remedies import explain_waiting
from lead_operator.kube.client import KubeClient
from lead_operator.kube.copies import NodeWatch, trim_child, trim_pod
from lead_operator.kube.informer import Informer
from lead_operator.kube.kinds import CLAIM, NODE
from lead_operator.kube.observe import (
    expected_build_pods,
    expected_training_pods,
    observe_cache,
    observe_pod,
)
from lead_operator.kube.server_clock import ServerClock
from lead_operator.resources.stored import read_stored
from lead_operator.resources.training_run import parse_training_run
from lead_testing.makers import (
    NOW,
    RUN_UID,
    SETTINGS,
    a_cache_body,
    a_dataset_cache,
    a_pod,
    a_ready_cache,
    a_run_body,
    a_training_run,
)
from lead_testing.parsed_statuses import cache_status, run_status


def test_a_caches_profile_and_answer_are_seen_and_an_old_answer_counts_for_nothing() -> None:
    body = a_cache_body(generation=2, storageProfile="cold")
    ready = {
        "type": "Ready", "status": "True", "reason": "Complete", "message": "the cache is complete",
        "lastTransitionTime": "2026-01-01T12:00:00Z",
    }  # fmt: skip
    body["status"] = {"observedGeneration": 2, "digest": "d1" * 32, "conditions": [ready]}
    seen = observe_cache("towns", body)
    assert (seen.storage_profile, seen.ready, seen.digest) == ("cold", True, a_ready_cache().digest)
    body["status"]["observedGeneration"] = 1
    assert not observe_cache("towns", body).ready
    assert not observe_cache("towns", None).found


def test_pods_are_expected_from_when_they_were_seen_until_their_end_is_accounted_for() -> None:
    def expected(created: bool, last_ended: int, *, ended: bool = False, phase: str = "Recovering") -> list[str]:
        held = {"created": created, "endedAttempt": last_ended}
        entry = {"name": "train", "seed": 0, "attempt": 2, "phase": phase, "restartState": held}
        run: Any = a_training_run(nodes=2)
        return list(expected_training_pods(run, run_status({"stages": [entry]}), ended=ended))

    group = [f"{a_training_run().identity.name}-train-s0-a2-{rank}" for rank in range(2)]
    assert expected(True, 1) == group
    assert expected(False, 1) == expected(True, 2) == []
    assert expected(True, 2, ended=True) == expected(False, 2, ended=True) == group
    assert expected(True, 1, ended=True) == expected(True, 2, ended=True, phase="Succeeded") == []
    assert (
        list(
            expected_training_pods(a_training_run(), run_status({"stages": [{"name": "train", "seed": 0}]}), ended=True)
        )
        == []
    )


def test_build_pods_are_expected_of_this_spec_alone_and_until_their_share_is_done() -> None:
    def expected(generation: int, *, ended: bool = False, phase: str = "Building", **facts: Any) -> list[str]:
        worker = {"index": 1, "attempt": 3, "endedAttempt": 2, "created": True, **facts}
        status = {"phase": phase, "build": {"generation": generation, "workers": [worker]}}
        return list(expected_build_pods(a_dataset_cache(generation=4), cache_status(status), ended=ended))

    assert expected(4) == ["towns-build-g4-a3-1"]
    assert expected(3) == expected(3, ended=True) == []
    assert expected(4, done=True) == expected(4, created=False) == expected(4, endedAttempt=3) == []
    assert expected(4, endedAttempt=3, ended=True) == ["towns-build-g4-a3-1"]


def test_no_build_pod_is_expected_of_a_cache_that_is_ready_or_failed() -> None:
    worker = {"index": 0, "attempt": 1, "endedAttempt": 0, "created": True}
    for phase in ("Ready", "Failed"):
        status = {"phase": phase, "build": {"generation": 4, "workers": [worker]}}
        for ended in (False, True):
            assert not list(expected_build_pods(a_dataset_cache(generation=4), cache_status(status), ended=ended))


def test_a_container_that_was_added_at_admission_is_not_taken_for_ours() -> None:
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": "our last word"}}
    proxy = {"name": "istio-proxy", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    metadata = {"name": "p", "uid": "u", "labels": {"lead.dev/role": "train"}}

    def seen(*containers: dict[str, Any]) -> tuple[Any, ...]:
        pod = {"metadata": metadata, "status": {"phase": "Failed", "containerStatuses": list(containers)}}
        found = observe_pod(pod, NodeWatch(Informer(cast(KubeClient, None), NODE, "")), NOW)
        return found.exit_code, found.reason, found.message

    ours = (137, "OOMKilled", "our last word")
    assert seen(proxy, {"name": "lead", "state": ended}) == seen({"name": "lead", "state": ended}, proxy) == ours
    assert seen({"name": "renamed", "state": ended}, proxy) == ours
    assert seen() == (None, "", "")


@pytest.mark.parametrize("pod_phase", ["Running", "Pending"])
def test_work_has_ended_with_our_container_whatever_was_added_goes_on(pod_phase: str) -> None:
    metadata = {"name": "p", "uid": "u", "labels": {"lead.dev/role": "train"}}
    proxy = {"name": "istio-proxy", "state": {"running": {}}}

    def seen(state: dict[str, Any], phase: str) -> tuple[str, bool]:
        containers = [proxy, {"name": "lead", "state": state}]
        pod = {"metadata": metadata, "status": {"phase": phase, "containerStatuses": containers}}
        found = observe_pod(pod, NodeWatch(Informer(cast(KubeClient, None), NODE, "")), NOW)
        return found.phase, found.kept_by_sidecar

    assert seen({"terminated": {"exitCode": 64}}, pod_phase) == ("Failed", True)
    assert seen({"terminated": {"exitCode": 0}}, pod_phase) == ("Succeeded", True)
    assert seen({"terminated": {"exitCode": 0}}, "Failed") == ("Succeeded", False)
    assert seen({"running": {}}, pod_phase) == (pod_phase, False)
    assert seen({"waiting": {"reason": "PodInitializing"}}, "Failed") == ("Failed", False)


@pytest.mark.parametrize("added", [[], [{"name": "istio-proxy", "state": {"terminated": {"exitCode": 0}}}]])
def test_a_pod_that_ends_by_itself_has_ended_when_the_kubelet_says_so(added: list[dict[str, Any]]) -> None:
    metadata = {"name": "p", "uid": "u", "labels": {"lead.dev/role": "train"}}
    ours = {"name": "lead", "state": {"terminated": {"exitCode": 137, "reason": "Error"}}}

    def seen(phase: str) -> tuple[str, bool]:
        pod = {"metadata": metadata, "status": {"phase": phase, "containerStatuses": [ours, *added]}}
        found = observe_pod(pod, NodeWatch(Informer(cast(KubeClient, None), NODE, "")), NOW)
        return found.phase, found.kept_by_sidecar

    assert seen("Running") == ("Running", False), "its logs stay, and who took it away is told with the phase"
    assert seen("Failed") == ("Failed", False)


def test_a_pod_that_lacks_a_secret_says_so_and_one_that_pulls_an_image_does_not() -> None:
    volumes = [{"secret": {"secretName": "lead-s3"}}, {"persistentVolumeClaim": {"claimName": "raw"}}, {"emptyDir": {}}]

    def seen(after_s: float, sandbox: str, **more: str) -> tuple[str, str]:
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": NOW.isoformat()}
        begun = {"type": "PodReadyToStartContainers", "status": sandbox}
        waiting = {"name": "lead", "state": {"waiting": {"reason": "ContainerCreating"}}}
        status = {"phase": "Pending", "conditions": [scheduled, begun], "containerStatuses": [waiting]}
        metadata = {"name": "p", "uid": "u", "labels": {"lead.dev/role": "train"}, **more}
        pod = trim_pod(
            trim_pod({"metadata": metadata, "spec": {"nodeName": "n", "volumes": volumes}, "status": status})
        )
        nodes = NodeWatch(Informer(cast(KubeClient, None), NODE, ""))
        found = observe_pod(pod, nodes, NOW + timedelta(seconds=after_s))
        return found.waiting_reason, found.waiting_message

    assert seen(30, "False") == seen(600, "True") == ("", "")
    reason, message = seen(61, "False")
    assert reason == "FailedMount" and message.endswith("it mounts Secret lead-s3, claim raw")
    assert seen(600, "False") == (reason, message), "a status is not to change with the clock"
    assert seen(600, "False", deletionTimestamp=NOW.isoformat()) == ("", ""), "its volumes go with it"
    told = explain_waiting(a_pod(0, name="p", waiting_reason=reason, waiting_message=message))
    assert told.endswith("check that each exists in the namespace; if all do, kubectl describe pod p shows the cause")


def a_claim(name: str, labels: dict[str, str], owner: str = "") -> dict[str, Any]:
    owners = [{"uid": owner, "controller": True}] if owner else []
    metadata = {"name": name, "namespace": "team-a", "uid": f"uid-of-{name}", "resourceVersion": "7", "labels": labels,
                "ownerReferences": owners, "creationTimestamp": "2026-01-01T12:00:00Z"}  # fmt: skip
    return trim_child({"metadata": metadata, "spec": {"volumeName": "pv-1"}})


def test_a_run_sees_its_claims_or_the_shared_ones_and_which_nodes_are_away() -> None:
    client = cast(KubeClient, SimpleNamespace(clock=ServerClock()))
    operator = Manager(client, SETTINGS)
    claims = operator.informers.of(CLAIM, "team-a")
    claims.note_own_write(a_claim("night-drive-cache-0", {}, RUN_UID), quiet=True)
    claims.note_own_write(a_claim("towns-shared-0", {"lead.dev/shared-claim": "towns"}), quiet=True)
    claims.note_own_write(a_claim("towns-shared-1", {"lead.dev/shared-claim": "others"}), quiet=True)
    nodes = operator.informers.nodes.informer
    nodes.synced.set()
    nodes.seen_since = time.monotonic()
    body = a_run_body(sessionCache={"medium": "PersistentVolume"})
    body["status"] = {"cacheNodes": ["node-0", ""]}
    seen = operator.runs.observe_cluster(parse_training_run(body), read_stored(body, "TrainingRun"))
    assert seen.claims == (ObservedClaim("night-drive-cache-0", "uid-of-night-drive-cache-0", NOW),)
    assert list(seen.nodes_away) == ["node-0"]
    shared = a_run_body(sessionCache={"medium": "PersistentVolume", "sharedClaimName": "towns"})
    seen = operator.runs.observe_cluster(parse_training_run(shared), read_stored(shared, "TrainingRun"))
    assert [claim.name for claim in seen.claims] == ["towns-shared-0"]
