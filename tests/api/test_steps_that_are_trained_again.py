"""A kill that loses more work than hangTimeoutSeconds is one restart; lost steps are shown as they come again."""

import json
from typing import Any

from lead_testing.api_bench import Bench
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import wait_for
from lead_testing.pod_driver import Exit
from lead_testing.statuses import newest_entry

LOST = range(11, 40)  # between the checkpoint of step 10 and the kill at step 40
STEP_S = 0.5
HANG_S = 10


def test_a_group_that_trains_lost_steps_again_is_neither_a_liar_nor_hung(bench: Bench) -> None:
    assert len(LOST) * STEP_S > HANG_S
    script = bench.driver.script
    script.steps.update({("pretrain", 1): list(range(1, 41)), ("pretrain", 2): list(LOST)})
    script.exits[("pretrain", 1, 0)] = Exit(137, "")
    bench.operator.start()
    bench.apply(
        a_dataset_cache("town", "datasets/town"),
        a_training_run(
            "drive", "town", stages=[{"name": "pretrain", "epochs": 5}], failurePolicy={"hangTimeoutSeconds": HANG_S}
        ),
    )
    wait_for("the last step before the kill", lambda: script.steps[("pretrain", 1)] == [])
    script.step_s = STEP_S
    seen: list[dict[str, Any]] = []

    def ended() -> bool:
        seen.append(bench.status("trun", "drive"))
        return seen[-1].get("phase") in ("Succeeded", "Failed")

    wait_for("the end", ended, within_s=120, poll_s=0.2)
    told = [(s, newest_entry(s)["progress"]) for s in seen]
    again = [(s, p) for s, p in told if p.get("attempt") == 2 and p.get("phase") == "Training"]
    shown = [p["step"] for _, p in again if p["step"] in LOST]
    assert len(set(shown)) > 1 and shown == sorted(shown)
    assert {s["phase"] for s, _ in again if s["pods"]["ready"] == 2} == {"Running"}
    done = seen[-1]
    assert (done["phase"], done["restarts"]["program"], done["stages"][0]["attempt"]) == ("Succeeded", 1, 2)
    assert "ImplausibleReport" not in json.dumps(seen) and '"Hung"' not in json.dumps(seen)
    assert "ImplausibleReport" not in bench.kubectl("get", "events", "-o", "json")
