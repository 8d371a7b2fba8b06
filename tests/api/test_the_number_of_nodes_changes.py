"""`kubectl scale` on a run that trains: a checkpoint, nothing counted, and no number that does not fit."""

import json
from typing import Any

from lead_protocol.check_record import CheckRecord
from lead_testing.api_bench import Bench
from lead_testing.kube_faults.truth import Truth
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import wait_for
from lead_testing.pod_driver import Exit

TOO_ODD = "batch_size: found 8, expected a multiple of the 3 processes"
REFUSED = Exit(64, CheckRecord(accepted=False, message=TOO_ODD).model_dump_json())
CHECK = ("check", 1, 0)


def train(bench: Bench, nodes: int = 4) -> None:
    bench.driver.script.held.add("train")
    bench.driver.script.held_at = 1
    bench.operator.start()
    run = a_training_run("drive", "town", nodes=nodes, stages=[{"name": "train", "epochs": 4}])
    bench.apply(a_dataset_cache("town", "datasets/town"), run)
    bench.wait_phase("trun", "drive", "Running")


def scale(bench: Bench, nodes: int) -> None:
    assert "scaled" in bench.kubectl("scale", "trun/drive", f"--replicas={nodes}")


def runs_with(bench: Bench, nodes: int) -> dict[str, Any]:
    def there() -> bool:
        status = bench.status("trun", "drive")
        return status["phase"] == "Running" and status["pods"] == {"desired": nodes, "ready": nodes}

    wait_for(f"{nodes} pods that train", there)
    return bench.status("trun", "drive")


def event(bench: Bench, reason: str) -> str:
    return bench.kubectl("get", "events", f"--field-selector=reason={reason}")


def test_a_group_is_made_smaller_and_larger_by_its_checkpoints(bench: Bench) -> None:
    train(bench)
    with Truth(bench.plane.kubeconfig, bench.namespace) as truth:
        scale(bench, 2)
        fewer = runs_with(bench, 2)
        assert fewer["stages"][0]["attempt"] == 2 and fewer["restarts"]["total"] == 0
        seen = json.loads(bench.kubectl("get", "trun", "drive", "--subresource=scale", "-o", "json"))
        assert (seen["spec"]["replicas"], seen["status"]["replicas"]) == (2, 2)
        scale(bench, 4)
        more = runs_with(bench, 4)
        assert more["stages"][0]["attempt"] == 3
        bench.driver.script.held.clear()
        done = bench.wait_phase("trun", "drive", "Succeeded", "Failed")
    assert (done["phase"], done["restarts"]["total"], truth.violations) == ("Succeeded", 0, [])
    wait_for("the event", lambda: "2 pods commit a checkpoint and stop; 4 go on" in event(bench, "Resizing"))
    assert "lastFailure" not in done


def test_a_number_that_does_not_fit_is_named_and_the_group_goes_on(bench: Bench) -> None:
    train(bench)
    bench.driver.script.exits[CHECK] = REFUSED
    scale(bench, 3)
    wait_for("the refusal", lambda: "NodesRefused" in json.dumps(bench.status("trun", "drive")["conditions"]))
    held = runs_with(bench, 4)
    assert held["stages"][0]["attempt"] == 1
    (said,) = [c["message"] for c in held["conditions"] if c["type"] == "ConfigChecked"]
    assert said.startswith(f"{TOO_ODD}; the run goes on with 4; correct spec.nodes")
    bench.driver.script.exits.clear()
    scale(bench, 2)
    assert runs_with(bench, 2)["stages"][0]["attempt"] == 2
    wait_for("the event", lambda: TOO_ODD in event(bench, "NodesRefused"))


def test_an_operator_that_dies_between_any_two_writes_of_a_change_ends_the_same(bench: Bench) -> None:
    train(bench)
    for nodes in (2, 4, 1):
        scale(bench, nodes)
        bench.operator.kill()
        bench.operator.start()
        wait_for(
            "the end of the group", lambda: bench.status("trun", "drive")["stages"][0]["restartState"]["endedAttempt"]
        )
        bench.operator.kill()
        bench.operator.start()
        assert runs_with(bench, nodes)["restarts"]["total"] == 0


def test_a_suspended_run_goes_on_with_the_number_that_was_set_meanwhile(bench: Bench) -> None:
    train(bench)
    bench.kubectl("patch", "trun", "drive", "--type=merge", "-p", json.dumps({"spec": {"suspend": True}}))
    bench.wait_phase("trun", "drive", "Suspended")
    patch = json.dumps({"spec": {"suspend": False, "nodes": 2}})
    bench.kubectl("patch", "trun", "drive", "--type=merge", "-p", patch)
    assert runs_with(bench, 2)["stages"][0]["attempt"] == 2
