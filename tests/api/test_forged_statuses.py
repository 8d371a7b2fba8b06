"""Somebody who may write statuses writes ends into them: they end nothing and hold nothing up."""

import json
from typing import Any

from lead_testing.api_bench import Bench
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import wait_for
from lead_testing.pod_driver import Exit

ONE: dict[str, Any] = {"stages": [{"name": "train", "epochs": 2}], "nodes": 1, "cleanPodPolicy": "All"}


def forge(bench: Bench, kind: str, name: str, end: str, **fields: Any) -> None:
    """Writes what `kubectl edit --subresource=status` would, besides what the status holds."""
    held = bench.status(kind, name)
    said = {"type": end, "status": "True", "reason": "Forged", "message": "forged", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
    conditions = [c for c in held.get("conditions", []) if c["type"] != end]
    status = {"phase": end, "reason": "Forged", "conditions": [*conditions, said], **fields}
    bench.kubectl("patch", kind, name, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))


def true_conditions(bench: Bench, name: str) -> set[str]:
    return {c["type"] for c in bench.status("trun", name).get("conditions", []) if c["status"] == "True"}


def events(bench: Bench, reason: str) -> list[str]:
    found = bench.kubectl("get", "events", "-o", f"jsonpath={{.items[?(@.reason=='{reason}')].involvedObject.name}}")
    return found.split()


def test_a_run_that_trains_goes_on_and_one_that_waits_begins(bench: Bench) -> None:
    bench.driver.script.held.add("train")
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"))
    for name in ("fails", "succeeds"):
        bench.apply(a_training_run(name, "town", ttlSecondsAfterFinished=0, **ONE))
    bench.apply(a_training_run("waits", "village", ttlSecondsAfterFinished=0, **ONE))
    for name in ("fails", "succeeds"):
        bench.wait_phase("trun", name, "Running")
    bench.wait_phase("trun", "waits", "Pending")
    pods = set(bench.driver.seen)
    forge(bench, "trun", "fails", "Failed", configHash="f" * 64, restarts=None)
    done = [bench.status("trun", "succeeds")["stages"][0] | {"phase": "Succeeded", "epoch": 2}]
    forge(bench, "trun", "succeeds", "Succeeded", stages=done, completionTime="2026-01-01T00:00:00Z")
    forge(bench, "trun", "waits", "Succeeded", configHash="f" * 64)
    wait_for("all to be restored", lambda: set(events(bench, "StatusRestored")) == {"fails", "succeeds", "waits"})
    for name in ("fails", "succeeds"):
        wait_for("what is forged to be gone", lambda name=name: "Forged" not in str(bench.status("trun", name)))
        status = bench.wait_phase("trun", name, "Running")
        assert not true_conditions(bench, name) & {"Succeeded", "Failed"}
        assert (status["stages"][0]["attempt"], status["restarts"]["total"]) == (1, 0)
    assert set(bench.driver.seen) == pods
    bench.driver.script.held.clear()
    bench.apply(a_dataset_cache("village", "datasets/village"))
    for name in ("fails", "succeeds", "waits"):
        wait_for(
            f"{name} to end and go", lambda name=name: name not in [r["metadata"]["name"] for r in bench.items("trun")]
        )
    stages = {pod["metadata"]["name"][-4:] for pod in bench.driver.seen.values() if "lead.dev/rank" in str(pod)}
    assert stages >= {"a1-0"} and not any(name.startswith("a2") for name in stages)


def test_what_has_ended_stays_so_whatever_is_written_before_the_operator_comes_back(bench: Bench) -> None:
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town", **ONE))
    bench.wait_phase("trun", "drive", "Succeeded")
    pods = set(bench.driver.seen)
    bench.operator.terminate()
    conditions = [c for c in bench.status("trun", "drive")["conditions"] if c["type"] not in ("Succeeded", "Failed")]
    said = {"type": "Failed", "status": "True", "reason": "Forged", "message": "forged", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
    status = {"phase": "Failed", "restarts": None, "conditions": [*conditions, said]}
    bench.kubectl(
        "patch", "trun", "drive", "--subresource=status", "--type=merge", "-p", json.dumps({"status": status})
    )
    bench.operator.start()
    bench.wait_phase("trun", "drive", "Succeeded")
    wait_for("what is forged to be gone", lambda: "Forged" not in str(bench.status("trun", "drive")))
    assert "Succeeded" in true_conditions(bench, "drive") and "Failed" not in true_conditions(bench, "drive")
    assert bench.status("trun", "drive")["restarts"]["total"] == 0
    assert set(bench.driver.seen) == pods


def test_counters_that_somebody_raises_or_lowers_spend_nothing_and_give_nothing_back(bench: Bench) -> None:
    bench.driver.script.held.add("train")
    bench.driver.script.exits[("train", 1, 0)] = Exit(1, "RuntimeError: the wheel came off")
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"))
    bench.apply(a_training_run("drive", "town", failurePolicy={"maxRestarts": 2}, **ONE))
    wait_for("the second attempt to train", lambda: _trains(bench, 2))
    pods, true = set(bench.driver.seen), bench.status("trun", "drive")
    entry = true["stages"][0]
    for restarts, stage in (
        ({"program": 99, "total": 99}, {}),
        ({"program": 0, "total": 0}, {}),
        ({}, {"restartState": entry["restartState"] | {"endedAttempt": 2}}),
        ({}, {"restartState": entry["restartState"] | {"endedAttempt": 0}}),
        ({}, {"attempt": 40, "restartState": entry["restartState"] | {"endedAttempt": 39}}),
    ):
        status = {"restarts": true["restarts"] | restarts, "stages": [entry | stage]}
        said = json.dumps({"status": status})
        bench.kubectl("patch", "trun", "drive", "--subresource=status", "--type=merge", "-p", said)
        wait_for(f"{status} to be replaced", lambda: _counters(bench.status("trun", "drive")) == _counters(true))
    assert set(bench.driver.seen) == pods and events(bench, "StatusRestored")
    bench.operator.kill()
    said = json.dumps({"status": {"restarts": true["restarts"] | {"program": 0, "total": 0}}})
    bench.kubectl("patch", "trun", "drive", "--subresource=status", "--type=merge", "-p", said)
    bench.operator.start()
    wait_for("a new process to replace them", lambda: _counters(bench.status("trun", "drive")) == _counters(true))
    bench.driver.script.held.clear()
    done = bench.wait_phase("trun", "drive", "Succeeded", "Failed")
    assert (done["phase"], done["stages"][0]["attempt"], done["restarts"]["program"]) == ("Succeeded", 2, 1)


def _trains(bench: Bench, attempt: int) -> bool:
    status = bench.status("trun", "drive")
    return status.get("phase") == "Running" and status["stages"][0]["attempt"] == attempt


def _counters(status: dict[str, Any]) -> tuple[Any, ...]:
    entry = status["stages"][0]
    held = {key: value for key, value in entry["restartState"].items() if key != "attemptTime"}
    return status["restarts"], entry["attempt"], held


def test_a_cache_that_is_built_goes_on_and_no_run_begins_before_it_is_ready(bench: Bench) -> None:
    bench.driver.script.held.add("")
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"), a_dataset_cache("village", "datasets/village"))
    bench.apply(a_training_run("drive", "village", **ONE))
    for name in ("town", "village"):
        bench.wait_phase("dsc", name, "Building")
    bench.wait_phase("trun", "drive", "Caching")
    pods = {pod["metadata"]["name"] for pod in bench.pods("build")}
    forge(bench, "dsc", "town", "Failed")
    forge(bench, "dsc", "village", "Ready", digest="5" * 64, manifestSha256="5" * 64)
    for name in ("town", "village"):
        bench.wait_phase("dsc", name, "Building")
    assert {pod["metadata"]["name"] for pod in bench.pods("build")} == pods
    assert bench.pods() == [] and bench.status("trun", "drive")["phase"] == "Caching"
    bench.driver.script.held.clear()
    for name in ("town", "village"):
        bench.wait_phase("dsc", name, "Ready")
    forge(bench, "dsc", "town", "Failed")
    wait_for("what is forged to be gone", lambda: "Forged" not in str(bench.status("dsc", "town")))
    assert bench.status("dsc", "town")["phase"] == "Ready"
    assert bench.wait_phase("trun", "drive", "Succeeded")["datasets"][0]["digest"] != "5" * 64


def test_a_failed_cache_stays_failed_whatever_is_done_to_its_status(bench: Bench) -> None:
    bench.driver.script.exits[("", 1, 0)] = Exit(65, "the source is empty")
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"))
    failed = bench.wait_phase("dsc", "town", "Failed")
    pods = set(bench.driver.seen)
    bench.operator.terminate()
    patch = json.dumps({"status": None})
    bench.kubectl("patch", "dsc", "town", "--subresource=status", "--type=merge", "-p", patch)
    bench.operator.start()
    assert bench.wait_phase("dsc", "town", "Failed")["reason"] == failed["reason"] == "BadData"
    assert set(bench.driver.seen) == pods
