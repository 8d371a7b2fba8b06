"""What a user sees of the closed loop on a real API server: due weights, an annotation, failures, the run's end."""

import json
from typing import Any

import pytest

from lead_protocol.object_keys import ClosedLoopKeys
from lead_testing.api_bench import Bench
from lead_testing.local_cluster.errors import StepFailed
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import OPEN_POLICY, wait_for
from lead_testing.pod_driver import Exit

OPEN = json.dumps({**json.loads(OPEN_POLICY), "allowedImages": ["*"]})  # which an older operator does not know
SIMULATOR = {"image": "registry.invalid/carla:1", "command": ["drive"], "regression": {"maxDrop": 5}}


def start(bench: Bench, **loop: Any) -> None:
    """Starts a run whose first stage trains on after one epoch, with a closed loop."""
    bench.driver.script.held.add("pretrain")
    bench.driver.script.held_at = 1
    bench.operator.start(LEAD_POLICY=OPEN)
    run = a_training_run("drive", "town", stages=[{"name": "pretrain", "epochs": 3}], closedLoop=SIMULATOR | loop)
    bench.apply(a_dataset_cache("town", "datasets/town"), run)


def loop_of(bench: Bench) -> dict[str, Any]:
    return dict(bench.status("trun", "drive").get("closedLoop") or {})


def condition(bench: Bench) -> tuple[str, str]:
    found = bench.status("trun", "drive").get("conditions", [])
    return next(((c["status"], c["reason"]) for c in found if c["type"] == "ClosedLoop"), ("", ""))


def events(bench: Bench, reason: str) -> str:
    return bench.kubectl("get", "events", f"--field-selector=reason={reason}")


def test_due_weights_are_driven_then_by_annotation_then_the_last_ones_after_the_end(bench: Bench) -> None:
    bench.driver.script.driving_scores = [70.0, 60.0, 68.0]
    start(bench)
    wait_for("the first result", lambda: loop_of(bench).get("drivingScore") == "70")
    assert condition(bench) == ("True", "Driven")
    assert "70% (epoch 1)" in bench.kubectl("get", "trun", "drive", "-o", "wide")
    bench.kubectl("annotate", "trun", "drive", "lead.dev/closed-loop=again")
    wait_for("the second result", lambda: loop_of(bench).get("drivingScore") == "60")
    assert condition(bench) == ("False", "Regression") and loop_of(bench)["requested"] == "again"
    wait_for("the event", lambda: "fell to 60" in events(bench, "ClosedLoopRegression"))
    bench.driver.script.held.clear()
    done = bench.wait_phase("trun", "drive", "Succeeded", "Failed")
    assert (done["phase"], done["restarts"]["total"]) == ("Succeeded", 0)
    wait_for("the last weights", lambda: loop_of(bench).get("epoch") == 3)
    assert [loop_of(bench)[key] for key in ("drivingScore", "attempt")] == ["68", 3]
    assert loop_of(bench)["best"]["score"] == "70" and condition(bench) == ("True", "Driven")
    assert bench.status("trun", "drive")["phase"] == "Succeeded"
    bench.kubectl("annotate", "trun", "drive", "lead.dev/closed-loop=once-more", "--overwrite")
    wait_for("one more after the end", lambda: loop_of(bench).get("attempt") == 4)


def test_a_command_that_fails_twice_is_a_condition_and_the_run_succeeds(bench: Bench) -> None:
    failure = Exit(1, "no vulkan device")
    bench.driver.script.exits.update({("closed-loop", attempt, 0): failure for attempt in (1, 2)})
    start(bench)
    wait_for("two failures", lambda: condition(bench) == ("False", "Failed"))
    assert loop_of(bench)["drive"]["tries"] == 2
    wait_for("the event", lambda: "no vulkan device" in events(bench, "ClosedLoopFailed"))
    bench.driver.script.held.clear()
    done = bench.wait_phase("trun", "drive", "Succeeded", "Failed")
    assert (done["phase"], done["restarts"]["total"]) == ("Succeeded", 0)
    wait_for("the last weights", lambda: loop_of(bench).get("epoch") == 3)


def test_an_operator_that_dies_while_one_drives_starts_no_second_pod(bench: Bench) -> None:
    bench.driver.script.held.add("closed-loop")
    start(bench)
    wait_for("a pod that drives", lambda: bench.pods("closed-loop"))
    before = {pod["metadata"]["uid"] for pod in bench.pods("closed-loop")}
    bench.operator.kill()
    bench.kubectl("patch", "trun", "drive", "--subresource=status", "--type=merge", "-p", '{"status":null}')
    bench.operator.start(LEAD_RESYNC_SECONDS="2", LEAD_POLICY=OPEN)
    wait_for("the rebuilt status", lambda: (loop_of(bench).get("drive") or {}).get("phase") == "Driving")
    looks = bench.operator.looks()
    wait_for("more looks", lambda: bench.operator.looks() >= looks + 2)
    assert {pod["metadata"]["uid"] for pod in bench.pods("closed-loop")} == before
    bench.driver.script.held.discard("closed-loop")
    wait_for("its result", lambda: loop_of(bench).get("attempt") == 1)


def test_a_first_stage_without_a_planner_is_not_driven_where_the_second_is_named(bench: Bench) -> None:
    bench.driver.script.held.add("pretrain")
    bench.driver.script.held_at = 1
    bench.operator.start(LEAD_POLICY=OPEN)
    stages = [{"name": "pretrain", "epochs": 2}, {"name": "posttrain", "epochs": 2, "initFrom": {"stage": "pretrain"}}]
    run = a_training_run("drive", "town", stages=stages, closedLoop={**SIMULATOR, "stages": ["posttrain"]})
    bench.apply(a_dataset_cache("town", "datasets/town"), run)
    wait_for("a checkpoint", lambda: (bench.status("trun", "drive").get("stages") or [{}])[0].get("checkpoint"))
    wait_for("the condition", lambda: condition(bench) == ("Unknown", "NotDriven"))
    with pytest.raises(StepFailed, match=r"closedLoop\.stages names what is no stage of kind Train"):
        bench.kubectl("patch", "trun", "drive", "--type=merge", "-p", '{"spec":{"closedLoop":{"stages":["postrain"]}}}')
    bench.driver.script.held.clear()
    wait_for("its last weights", lambda: [loop_of(bench).get(key) for key in ("stage", "epoch")] == ["posttrain", 2])
    driven = [pod for pod in bench.driver.seen.values() if pod["metadata"]["labels"]["lead.dev/role"] == "closed-loop"]
    assert {pod["metadata"]["labels"]["lead.dev/stage"] for pod in driven} == {"posttrain"}


def test_results_of_every_seed_beyond_keep_go_after_the_end_also_when_an_operator_died_over_them(bench: Bench) -> None:
    bench.operator.start(LEAD_POLICY=OPEN)
    stages = [{"name": "train", "epochs": 1, "seeds": [0, 1]}]
    run = a_training_run("drive", "town", stages=stages, parallelism=2, closedLoop={**SIMULATOR, "keep": 1})
    bench.apply(a_dataset_cache("town", "datasets/town"), run)
    bench.wait_phase("trun", "drive", "Succeeded")

    def is_driven() -> bool:
        loop = loop_of(bench)
        return len(loop.get("driven", [])) == 2 and loop["drive"]["phase"] == "Succeeded"

    wait_for("both seeds", is_driven)
    bench.operator.kill()
    uid = bench.get("trun", "drive")["metadata"]["uid"]
    left = [f"{ClosedLoopKeys(bench.namespace, uid, 'train', seed).results(1, 0)}files/a.png" for seed in (0, 1)]
    for key in left:
        bench.store.create(key, b"of an attempt that is over")
    bench.operator.start(LEAD_POLICY=OPEN)
    wait_for("their removal", lambda: not [key for key in left if bench.store.head(key) is not None])
    assert bench.status("trun", "drive")["phase"] == "Succeeded" and loop_of(bench)["drive"]["phase"] == "Succeeded"
