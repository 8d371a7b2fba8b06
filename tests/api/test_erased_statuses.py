"""Somebody erases the status of a run: what it has come to and spent stands, and nothing that is over starts again."""

from typing import Any

from lead_protocol.object_keys import ControlKeys
from lead_testing.api_bench import Bench
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import wait_for
from lead_testing.pod_driver import Exit

KEPT = ("phase", "reason", "restarts", "datasets", "completionTime")
STREAK = ("failedAttempt", "failedReason", "atStep", "errorsAtStep", "endsAtStep")
ENDS = {"crashes": "Failed", "mistaken": "Failed", "fine": "Succeeded", "rests": "Suspended", "lives": "Running"}


def a_run(name: str, **spec: Any) -> dict[str, Any]:
    """Returns a run whose one stage has its name, so that a script can tell the pods apart."""
    return a_training_run(name, "town", stages=[{"name": name, "epochs": 2}], **spec)


def erase(bench: Bench, name: str) -> None:
    bench.kubectl("patch", "trun", name, "--subresource=status", "--type=merge", "-p", '{"status":null}')


def told(status: dict[str, Any]) -> dict[str, Any]:
    """Returns what must come back: all but times and reports of the moment."""
    ends = [c for c in status["conditions"] if c["type"] in ("Succeeded", "Failed") and c["status"] == "True"]
    over = [c["message"] for c in ends]
    (stage,) = status["stages"]
    shown = [stage["phase"], stage["attempt"], stage.get("checkpoint")]
    found = {key: status.get(key) for key in KEPT} | {"over": over, "stage": shown}
    return found if over else found | {key: stage["restartState"].get(key) for key in STREAK}


def test_an_erased_status_comes_back_whatever_the_run_has_come_to(bench: Bench) -> None:
    script = bench.driver.script
    script.held |= {"rests", "lives"}
    crash = Exit(1, "RuntimeError: the wheel came off")
    script.exits |= {("crashes", 1, 0): crash, ("crashes", 2, 1): crash, ("lives", 1, 0): crash}
    script.exits[("mistaken", 1, 0)] = Exit(64, "unknown key 'batchsize'")
    bench.operator.start()
    bench.apply(
        a_dataset_cache("town", "datasets/town"),
        a_run("crashes", failurePolicy={"maxRestarts": 1}),
        a_run("mistaken", cleanPodPolicy="All"),
        a_run("fine", cleanPodPolicy="All"),
        a_run("rests"),
        a_run("lives"),
    )
    bench.wait_phase("trun", "rests", "Running")
    bench.kubectl("patch", "trun", "rests", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    wait_for("the second attempt", lambda: bench.status("trun", "lives").get("restarts", {}).get("program") == 1)
    before = {name: told(bench.wait_phase("trun", name, end)) for name, end in ENDS.items()}
    assert before["crashes"]["restarts"] == {"total": 1, "program": 1, "infrastructure": 0, "voluntary": 0}
    wait_for("pods that have ended to be cleaned", lambda: not _pods_of(bench, "mistaken", "fine"))
    pods = set(bench.driver.seen)
    for name in ENDS:
        erase(bench, name)
    assert {name: told(bench.wait_phase("trun", name, end)) for name, end in ENDS.items()} == before
    assert set(bench.driver.seen) == pods


def _pods_of(bench: Bench, *names: str) -> list[str]:
    found = (pod["metadata"]["name"] for pod in bench.pods())
    return [pod for pod in found if pod.startswith(tuple(f"{name}-" for name in names))]


def test_a_verdict_of_an_outage_is_told_at_once_and_stands_when_the_store_is_back(bench: Bench) -> None:
    bench.driver.script.held.add("drive")
    bench.driver.script.commit_before_exit = False
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"), a_run("drive"))
    bench.wait_phase("trun", "drive", "Running")
    bench.minio.stop()
    try:
        bench.driver.script.exits[("drive", 1, 0)] = Exit(64, "unknown key 'batchsize'")
        assert _storage(bench.wait_phase("trun", "drive", "Failed")) == "False"
    finally:
        bench.minio.start()
    wait_for("the bucket to be told", lambda: _storage(bench.status("trun", "drive")) == "True")
    before = bench.status("trun", "drive")
    assert (
        bench.store.head(ControlKeys(bench.namespace, bench.get("trun", "drive")["metadata"]["uid"]).ended) is not None
    )
    pods = set(bench.driver.seen)
    erase(bench, "drive")
    assert told(bench.wait_phase("trun", "drive", "Failed")) == told(before)
    assert set(bench.driver.seen) == pods


def _storage(status: dict[str, Any]) -> str:
    return next((c["status"] for c in status.get("conditions", []) if c["type"] == "StorageAvailable"), "")
