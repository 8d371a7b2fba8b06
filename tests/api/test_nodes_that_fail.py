"""Nodes that fail: one that cannot stop its pod, one that is lost, and one lost with a rank's cache on its disk."""

import json
from datetime import datetime
from typing import Any

from lead_testing.api_bench import Bench, add_node, set_node_ready
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import CONSTANTS, PATIENT, wait_for

LOSS_S = 3
NEVER = dict.fromkeys(("LEAD_RESYNC_SECONDS", "LEAD_RELIST_SECONDS", "LEAD_PROGRESS_SECONDS"), "600")
AFFINITY = "0/1 nodes are available: 1 node(s) had volume node affinity conflict."


def a_node_for_rank_1(bench: Bench) -> str:
    """Makes a node that takes rank 1 of the first attempt, and returns its name."""
    name = f"{bench.namespace}-b"
    add_node(bench.plane, name)
    bench.driver.script.nodes[("pretrain", 1, 1)] = name
    bench.driver.script.held.add("pretrain")
    return name


def test_a_lost_node_is_waited_for_as_long_as_the_run_says_and_no_longer(bench: Bench) -> None:
    node = a_node_for_rank_1(bench)
    bench.operator.start()
    run = a_training_run("drive", "town", failurePolicy={"nodeLossSeconds": LOSS_S})
    bench.apply(a_dataset_cache("town", "datasets/town"), run)
    bench.wait_phase("trun", "drive", "Running")
    bench.operator.kill()
    bench.operator.start(**NEVER)  # nothing but the run's own time makes it look again
    wait_for("the first look", bench.operator.looks)
    bench.driver.script.dead_nodes.add(node)
    set_node_ready(bench.plane, node, ready=False)
    (ready,) = json.loads(bench.plane.kubectl("get", "node", node, "-o", "json"))["status"]["conditions"]
    lost_at = datetime.fromisoformat(ready["lastTransitionTime"])
    made = wait_for("the next attempt", lambda: next_attempt(bench), within_s=60 + LOSS_S)
    waited = [datetime.fromisoformat(pod["metadata"]["creationTimestamp"]) - lost_at for pod in made]
    assert min(waited).total_seconds() >= LOSS_S - 1, "both times are whole seconds"
    wait_for("the reason", lambda: bench.status("trun", "drive")["lastFailure"]["reason"] == "NodeLost")


def next_attempt(bench: Bench) -> list[dict[str, Any]]:
    """Returns the pods of the second attempt once both are there."""
    pods = [pod for pod in bench.pods() if pod["metadata"]["labels"]["lead.dev/attempt"] == "2"]
    return pods if len(pods) == 2 else []


def test_a_pod_that_its_node_cannot_stop_is_named_and_the_run_goes_on_without_it(bench: Bench) -> None:
    node = a_node_for_rank_1(bench)
    bench.operator.start(**{CONSTANTS: json.dumps({**PATIENT, "lead_operator.decisions.observed.STAYS_S": 2.0})})
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town", gracePeriodSeconds=1))
    bench.wait_phase("trun", "drive", "Running")
    bench.driver.script.dead_nodes.add(node)  # its kubelet goes on saying that it is there
    bench.kubectl("delete", "pod", "drive-pretrain-s0-a1-0", "--wait=false")

    def ready() -> str:
        conditions = bench.status("trun", "drive")["conditions"]
        return next(str(c["message"]) for c in conditions if c["type"] == "Ready")

    wait_for("the next attempt to run", lambda: "all 2 pods of attempt 2 run" in ready())
    assert "pod drive-pretrain-s0-a1-1 got a stop signal and still exists" in ready()
    assert "drive-pretrain-s0-a1-1" in [pod["metadata"]["name"] for pod in bench.pods()]
    bench.driver.script.dead_nodes.clear()
    wait_for("the pod to be named no more", lambda: "got a stop signal" not in ready())
    bench.driver.script.held.clear()
    done = bench.wait_phase("trun", "drive", "Succeeded", "Failed")
    assert (done["phase"], done["restarts"]["infrastructure"], done["restarts"]["total"]) == ("Succeeded", 1, 1)


def test_the_cache_claim_of_a_lost_node_is_made_anew_without_anybody(bench: Bench) -> None:
    node = a_node_for_rank_1(bench)
    bench.driver.script.waiting[("pretrain", 2, 1)] = ("Unschedulable", AFFINITY)
    bench.operator.start(
        **{CONSTANTS: json.dumps({**PATIENT, "lead_operator.decisions.training_run.pod_group.RETURNS_S": 1.0})}
    )
    asked = {"medium": "PersistentVolume", "sizeLimit": "1Gi"}
    run = a_training_run("drive", "town", failurePolicy={"nodeLossSeconds": 1}, sessionCache=asked)
    bench.apply(a_dataset_cache("town", "datasets/town"), run)
    wait_for(
        "both nodes to be known", lambda: bench.status("trun", "drive").get("cacheNodes") == [bench.namespace, node]
    )
    bench.wait_phase("trun", "drive", "Running")

    first, second = (bench.get("pvc", f"drive-cache-{rank}")["metadata"] for rank in (0, 1))
    bench.driver.script.dead_nodes.add(node)
    set_node_ready(bench.plane, node, ready=False)
    wait_for("the claim to be deleted", lambda: "deletionTimestamp" in bench.get("pvc", "drive-cache-1")["metadata"])
    # As the controller does that protects claims in use: no pod that has a node uses it any more.
    bench.kubectl("patch", "pvc", "drive-cache-1", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    made = wait_for("another claim", lambda: bench.get("pvc", "drive-cache-1").get("metadata"))
    assert made["uid"] != second["uid"] and bench.get("pvc", "drive-cache-0")["metadata"]["uid"] == first["uid"]
    wait_for("an event", lambda: "SessionCacheLost" in bench.kubectl("get", "events"))
    bench.driver.script.waiting.clear()
    bench.driver.script.held.clear()
    done = bench.wait_phase("trun", "drive", "Succeeded", "Failed")
    assert (done["phase"], done["restarts"]["infrastructure"], done["restarts"]["total"]) == ("Succeeded", 1, 1)
