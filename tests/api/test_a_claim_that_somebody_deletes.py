"""`kubectl delete pvc` of a session cache while its run trains: the next attempt begins with a new claim by itself."""

import json

from lead_testing.api_bench import Bench
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import wait_for
from lead_testing.pod_driver import Exit

CLAIM = "drive-cache-1"


def protect(bench: Bench) -> bool:
    """Plays the controller of kubernetes.io/pvc-protection; returns whether the deleted claim is gone."""
    metadata = bench.get("pvc", CLAIM).get("metadata", {})
    if "deletionTimestamp" not in metadata:
        return True
    bound = [pod for pod in bench.driver.pods() if pod["spec"].get("nodeName")]
    if CLAIM not in json.dumps([pod["spec"].get("volumes") for pod in bound]):
        bench.kubectl("patch", "pvc", CLAIM, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    return False


def test_a_deleted_claim_is_created_again_without_anybody(bench: Bench) -> None:
    bench.driver.script.held.add("pretrain")
    bench.operator.start()
    cache = {"medium": "PersistentVolume", "sizeLimit": "1Gi"}
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town", sessionCache=cache))
    bench.wait_phase("trun", "drive", "Running")
    first = bench.get("pvc", CLAIM)["metadata"]
    assert first["finalizers"] == ["kubernetes.io/pvc-protection"]
    bench.kubectl("delete", "pvc", CLAIM, "--wait=false")
    assert not protect(bench), "a running pod keeps it"
    bench.driver.script.exits[("pretrain", 1, 0)] = Exit(137, "")
    wait_for("the claim to go", lambda: protect(bench))
    wait_for("the second attempt", lambda: bench.status("trun", "drive").get("pods", {}).get("ready") == 2)
    assert bench.get("pvc", CLAIM)["metadata"]["uid"] != first["uid"]
    bench.driver.script.held.clear()
    done = bench.wait_phase("trun", "drive", "Succeeded", "Failed")
    assert (done["phase"], done["restarts"]["program"], done["stages"][0]["attempt"]) == ("Succeeded", 1, 2)
