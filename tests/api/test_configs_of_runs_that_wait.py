"""A wrong configuration ends a run while it waits, before its cache is built or a queue admits it."""

from typing import Any

from lead_protocol.check_record import CheckRecord
from lead_testing.api_bench import Bench
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import wait_for
from lead_testing.pod_driver import Exit

ONE: dict[str, Any] = {"stages": [{"name": "train", "epochs": 2}], "nodes": 1}
SENTENCE = "batchsize: unknown key; did you mean batch_size?"
REFUSED = Exit(64, CheckRecord(accepted=False, message=SENTENCE).model_dump_json())
CHECK = ("check", 1, 0)


def checks(bench: Bench) -> list[dict[str, Any]]:
    """Returns every check pod that there ever was."""
    return [pod for pod in bench.driver.seen.values() if pod["metadata"]["labels"]["lead.dev/role"] == "check"]


def condition(bench: Bench, kind: str) -> dict[str, Any]:
    return next((c for c in bench.status("trun", "drive").get("conditions", []) if c["type"] == kind), {})


def test_a_wrong_one_ends_the_run_while_its_cache_is_built(bench: Bench) -> None:
    bench.driver.script.held.add("")
    bench.driver.script.exits[CHECK] = REFUSED
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town", **ONE))
    failed = bench.wait_phase("trun", "drive", "Failed", "Succeeded")
    assert (failed["phase"], failed["reason"]) == ("Failed", "BadConfig")
    assert condition(bench, "Failed")["message"].startswith(SENTENCE)
    assert bench.status("dsc", "town")["phase"] == "Building"
    assert len(checks(bench)) == 1 and bench.pods() == []


def test_a_right_one_is_asked_once_and_holds_up_nothing_though_operators_die(bench: Bench) -> None:
    bench.driver.script.held.add("")
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town", **ONE))
    wait_for("the answer", lambda: condition(bench, "ConfigChecked").get("status") == "True")
    bench.operator.kill()
    bench.kubectl("delete", "pod", "-l", "lead.dev/role=check")
    bench.operator.start()
    bench.driver.script.held.clear()
    assert bench.wait_phase("trun", "drive", "Succeeded", "Failed")["phase"] == "Succeeded"
    assert len(checks(bench)) == 1 and condition(bench, "ConfigChecked")["status"] == "True"


def test_a_pod_that_cannot_start_or_may_not_be_made_holds_up_nothing(bench: Bench) -> None:
    bench.driver.script.held.add("")
    bench.driver.script.waiting[CHECK] = ("ImagePullBackOff", "no such image")
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town", **ONE))
    wait_for("the check pod", lambda: checks(bench))
    bench.driver.script.held.clear()
    assert bench.wait_phase("trun", "drive", "Succeeded", "Failed")["phase"] == "Succeeded"
    wait_for("its removal", lambda: not bench.pods("check"))


def test_a_run_that_a_queue_holds_is_checked(bench: Bench) -> None:
    bench.driver.script.exits[CHECK] = REFUSED
    bench.driver.script.waiting[("train", 1, 0)] = ("SchedulingGated", "Scheduling is blocked")
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"))
    bench.wait_phase("dsc", "town", "Ready")
    bench.apply(a_training_run("drive", "town", **ONE))
    failed = bench.wait_phase("trun", "drive", "Failed", "Succeeded")
    assert failed["reason"] == "BadConfig" and condition(bench, "Ready")["reason"] == "Failed"
    wait_for("the pod that waits to go", lambda: not bench.pods())


def test_a_run_that_starts_at_once_costs_no_check(bench: Bench) -> None:
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town", **ONE))
    bench.wait_phase("trun", "drive", "Succeeded")
    assert not checks(bench) and not condition(bench, "ConfigChecked")
