"""Each way in which pods end, wait or report, and what it costs the run: the attempt, the budget, the words."""

import json
from typing import Any

import pytest

from lead_testing.api_bench import Bench
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import wait_for
from lead_testing.pod_driver import Exit
from lead_testing.statuses import newest_entry

TAKEN_AWAY = ("PreemptionByScheduler", "EvictionByEvictionAPI", "DeletionByTaintManager", "TerminationByKubelet")
STAGES = [{"name": "pretrain", "epochs": 2}, {"name": "posttrain", "epochs": 2, "initFrom": {"stage": "pretrain"}}]


def play(bench: Bench, **spec: Any) -> dict[str, Any]:
    """Runs a cache and a run to the run's end; returns its status."""
    begin(bench, **spec)
    return bench.wait_phase("trun", "drive", "Succeeded", "Failed")


def begin(bench: Bench, **spec: Any) -> None:
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town", **spec))


def made(bench: Bench, part: str = "drive") -> list[str]:
    """Returns the names of all pods there ever were."""
    return sorted(p["metadata"]["name"] for p in bench.driver.seen.values() if part in p["metadata"]["name"])


def live(bench: Bench) -> list[str]:
    return [p["metadata"]["name"] for p in bench.pods() if p["status"].get("phase") not in ("Succeeded", "Failed")]


def test_rank_0_failing_restarts_all_ranks(bench: Bench) -> None:
    bench.driver.script.exits[("pretrain", 1, 0)] = Exit(1, "boom")
    done = play(bench)
    assert (done["phase"], done["restarts"]["program"], len(made(bench))) == ("Succeeded", 1, 4)


def test_a_usage_error_fails_at_once(bench: Bench) -> None:
    bench.driver.script.exits[("pretrain", 1, 0)] = Exit(2, "error: unrecognized arguments: --epochz")
    failed = play(bench)
    assert (failed["phase"], failed["reason"], failed["restarts"]["total"]) == ("Failed", "BadUsage", 0)
    assert "--epochz" in failed["lastFailure"]["message"] or "--epochz" in json.dumps(failed["conditions"])


def test_too_little_memory_is_named_and_counts_as_the_programs_error(bench: Bench) -> None:
    bench.driver.script.exits[("pretrain", 1, 1)] = Exit(137, "", "OOMKilled")
    done = play(bench)
    assert (done["phase"], done["restarts"]["program"]) == ("Succeeded", 1)
    assert done["lastFailure"]["reason"] == "OOMKilled"
    assert "resources.limits.memory" in done["lastFailure"]["message"]


def test_pods_that_end_by_themselves_stay_with_their_logs(bench: Bench) -> None:
    assert play(bench, stages=STAGES)["phase"] == "Succeeded"
    wait_for("the last pods to end", lambda: not live(bench))
    there = bench.driver.pods()
    assert sorted(p["metadata"]["name"] for p in there if "deletionTimestamp" not in p["metadata"]) == made(bench, "")
    assert len(made(bench)) == 4 and len(there) > 4, "those that built the cache too"


def test_a_stop_after_a_checkpoint_costs_no_budget(bench: Bench) -> None:
    drained = Exit(75, disruption="EvictionByEvictionAPI")
    bench.driver.script.exits.update({("pretrain", 1, 0): Exit(75), ("pretrain", 1, 1): drained})
    done = play(bench)
    restarts = done["restarts"]
    assert (done["phase"], restarts["program"], restarts["infrastructure"]) == ("Succeeded", 0, 0)
    assert restarts["voluntary"] == 1


def test_whoever_takes_a_pod_away_it_is_infrastructure(bench: Bench) -> None:
    for attempt, who in enumerate(TAKEN_AWAY, 1):
        bench.driver.script.exits[("pretrain", attempt, 1)] = Exit(137, "", "Error", who)
    done = play(bench, failurePolicy={"maxRestarts": 0})
    assert (done["phase"], done["restarts"]["infrastructure"]) == ("Succeeded", len(TAKEN_AWAY))
    assert done["lastFailure"]["reason"] == TAKEN_AWAY[-1]


def test_a_crash_loop_before_the_first_checkpoint_stops_at_max_restarts(bench: Bench) -> None:
    bench.driver.script.commit_before_exit = False
    bench.driver.script.exits.update({("pretrain", attempt, 0): Exit(1, "boom") for attempt in range(1, 9)})
    failed = play(bench, failurePolicy={"maxRestarts": 2})
    assert (failed["phase"], failed["reason"], failed["stages"][0]["attempt"]) == ("Failed", "MaxRestarts", 3)
    bench.kubectl("patch", "trun", "drive", "--type=merge", "-p", '{"spec":{"failurePolicy":{"maxRestarts":9}}}')
    generation = bench.get("trun", "drive")["metadata"]["generation"]
    wait_for("an answer", lambda: bench.status("trun", "drive")["observedGeneration"] == generation)
    assert bench.status("trun", "drive")["phase"] == "Failed", "an end is an end, whatever budget is raised"
    assert len(made(bench)) == 6


def test_a_crash_loop_at_one_checkpoint_stops_at_no_progress_limit(bench: Bench) -> None:
    bench.driver.script.exits.update({("pretrain", attempt, 0): Exit(1, "boom") for attempt in range(1, 9)})
    failed = play(bench, failurePolicy={"maxRestarts": 8, "noProgressLimit": 2})
    assert (failed["phase"], failed["reason"], newest_entry(failed)["checkpoint"]["epoch"]) == (
        "Failed",
        "NoProgress",
        1,
    )


def test_a_stage_that_fails_does_not_run_its_parent_again(bench: Bench) -> None:
    bench.driver.script.exits[("posttrain", 1, 0)] = Exit(1, "boom")
    done = play(bench, stages=STAGES)
    assert (done["phase"], [s["attempt"] for s in done["stages"]]) == ("Succeeded", [1, 2])
    assert not [name for name in made(bench) if "pretrain-s0-a2" in name]


def test_half_a_group_gives_its_place_back_at_the_pending_deadline(bench: Bench) -> None:
    bench.driver.script.waiting[("pretrain", 1, 1)] = ("Unschedulable", "0/1 nodes are available: 1 Insufficient cpu.")
    failed = play(bench, pendingDeadlineSeconds=4)
    assert (failed["phase"], failed["reason"]) == ("Failed", "PendingDeadlineExceeded")
    assert "Insufficient cpu" in json.dumps(failed["conditions"])
    wait_for("the other half to be gone", lambda: live(bench) == [])


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("ImagePullBackOff", "Back-off pulling image registry.invalid/lead-trainer"),
        ("CreateContainerConfigError", 'secret "lead-wandb-none" not found'),
        ("CreateContainerError", 'exec: "lead": executable file not found in $PATH'),
    ],
)
def test_why_a_pod_waits_is_told_once_and_is_no_hot_loop(bench: Bench, reason: str, said: str) -> None:
    bench.driver.script.waiting[("pretrain", 1, 1)] = (reason, said)
    begin(bench)
    told = wait_for(
        "the reason", lambda: bench.status("trun", "drive").get("reason") == reason and bench.status("trun", "drive")
    )
    assert said in json.dumps(told["conditions"]).replace('\\\\\\"', '"').replace('\\"', '"')
    assert any(_five_looks_write_nothing(bench) for _ in range(4)), "the event follows the status; then there is rest"
    bench.driver.script.waiting.clear()
    assert bench.wait_phase("trun", "drive", "Succeeded", "Failed")["phase"] == "Succeeded"


def _five_looks_write_nothing(bench: Bench) -> bool:
    passes, writes = _passes(bench), bench.operator.writes()
    wait_for("five more looks", lambda: _passes(bench) >= passes + 5)
    return bench.operator.writes() == writes


def _passes(bench: Bench) -> float:
    return bench.operator.metric("lead_reconcile_duration_seconds_count", kind="TrainingRun")


def test_a_group_that_hangs_is_told_and_replaced(bench: Bench) -> None:
    bench.driver.script.hung.add(("pretrain", 1))
    done = play(bench, failurePolicy={"hangTimeoutSeconds": 10})
    assert done["lastFailure"]["reason"] == "Hung"
    assert (done["phase"], done["restarts"]["program"], done["stages"][0]["attempt"]) == ("Succeeded", 1, 2)


FUTURE = {"attempt": 99, "seq": 7, "phase": "Training", "epoch": 2, "epochs": 2, "step": 20, "steps": 20}


@pytest.mark.parametrize(
    "report", [b"\x00\xffno json", b"{" * 100_000, b"x" * 10_000_000, json.dumps(FUTURE).encode()],
    ids=["garbage", "deep", "huge", "of the future"],
)  # fmt: skip
def test_a_hostile_report_harms_nothing(bench: Bench, report: bytes) -> None:
    bench.driver.script.reports[1] = report
    done = play(bench)
    assert (done["phase"], done["restarts"]["total"], done["stages"][0]["attempt"]) == ("Succeeded", 0, 1)
    assert bench.operator.page("healthz") == (200, "ok")
