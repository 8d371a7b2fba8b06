"""Seeds of one stage train at once, each with its own pods, and one that fails leaves the others alone."""

from typing import Any

from lead_testing.api_bench import Bench
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import wait_for

STAGES = [
    {"name": "pretrain", "epochs": 2},
    {"name": "posttrain", "epochs": 2, "initFrom": {"stage": "pretrain"}, "seeds": [0, 1, 2]},
]


def test_three_seeds_train_two_at_a_time_after_their_parent(bench: Bench) -> None:
    bench.driver.script.held.add("posttrain")
    bench.operator.start()
    run = a_training_run("drive", "town", stages=STAGES, parallelism=2)
    bench.apply(a_dataset_cache("town", "datasets/town"), run)
    running = wait_for("two seeds to train", lambda: _two_seeds(bench))
    assert {entry["seed"] for entry in running} == {0, 1}
    victim = next(p for p in bench.pods() if p["metadata"]["labels"]["lead.dev/seed"] == "1")["metadata"]["name"]
    others = _uids(bench, "0")
    bench.kubectl("delete", "pod", victim, "--wait=false")
    wait_for("the second attempt of seed 1", lambda: _entry(bench, 1).get("attempt") == 2)
    assert _uids(bench, "0") == others
    bench.driver.script.held.clear()
    done = bench.wait_phase("trun", "drive", "Succeeded", "Failed")
    assert [(e["name"], e["seed"], e["phase"], e["attempt"]) for e in done["stages"]] == [
        ("pretrain", 0, "Succeeded", 1),
        ("posttrain", 0, "Succeeded", 1),
        ("posttrain", 1, "Succeeded", 2),
        ("posttrain", 2, "Succeeded", 1),
    ]
    assert (done["restarts"]["infrastructure"], done["restarts"]["total"]) == (1, 1)


def _two_seeds(bench: Bench) -> list[dict[str, Any]]:
    entries = bench.status("trun", "drive").get("stages", [])
    running = [e for e in entries if e["name"] == "posttrain" and e["phase"] == "Running"]
    up = [p for p in bench.pods() if p.get("status", {}).get("phase") == "Running"]
    return running if len(running) == 2 and len(up) == 4 else []


def _entry(bench: Bench, seed: int) -> dict[str, Any]:
    entries = bench.status("trun", "drive").get("stages", [])
    return next((e for e in entries if (e["name"], e["seed"]) == ("posttrain", seed)), {})


def _uids(bench: Bench, seed: str) -> set[str]:
    return {p["metadata"]["uid"] for p in bench.pods() if p["metadata"]["labels"]["lead.dev/seed"] == seed}
