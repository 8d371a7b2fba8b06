"""A stage of kind Evaluation: it waits for the weights, measures them for each seed, and shows what it found."""

from typing import Any

from lead_testing.api_bench import Bench
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import wait_for

STAGES = [
    {"name": "train", "epochs": 2, "seeds": [3, 5], "config": {"lr": 0.1}},
    {"name": "test", "kind": "Evaluation", "initFrom": {"stage": "train"}, "config": {"val_batch": 4}},
]


def test_each_seed_is_measured_and_the_reports_end_the_run(bench: Bench) -> None:
    bench.driver.script.held.add("test")
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town", stages=STAGES))
    wait_for("the first evaluation", lambda: _entry(bench, 3).get("phase") == "Running")
    victim, _ = [pod for pod in bench.pods() if pod["metadata"]["labels"]["lead.dev/stage"] == "test"]
    bench.kubectl("delete", "pod", victim["metadata"]["name"], "--wait=false")
    wait_for("its second attempt", lambda: _entry(bench, 3).get("attempt") == 2)
    bench.driver.script.held.clear()
    done = bench.wait_phase("trun", "drive", "Succeeded", "Failed")
    assert [(e["name"], e["seed"], e["phase"], e["attempt"]) for e in done["stages"]] == [
        ("train", 3, "Succeeded", 1),
        ("train", 5, "Succeeded", 1),
        ("test", 3, "Succeeded", 2),
        ("test", 5, "Succeeded", 1),
    ]
    for entry in done["stages"][2:]:
        assert entry["progress"]["metrics"] == {"val/loss": "0.25", "val/mAP": "0.5"}
        assert f"/test-s{entry['seed']}/checkpoints/" in entry["checkpoint"]["uri"]
    assert not any(entry["progress"].get("metrics") for entry in done["stages"][:2])
    (succeeded,) = [one for one in done["conditions"] if one["type"] == "Succeeded"]
    report = done["stages"][-1]["checkpoint"]["uri"]
    assert succeeded["message"].endswith(f"test s3 (measured), test s5 (measured); the report is {report}")


def _entry(bench: Bench, seed: int) -> dict[str, Any]:
    entries = bench.status("trun", "drive").get("stages", [])
    return next((e for e in entries if (e["name"], e["seed"]) == ("test", seed)), {})
