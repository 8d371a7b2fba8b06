"""The recipe `nuplan` on a real cluster: its example manifest, from raw logs through a kill to a report.

Only sizes are changed: a preset for one CPU core, and two pods without GPUs.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from lead_testing.installed import Installed, conditions
from lead_testing.live_examples import applied_example
from lead_testing.live_runs import epoch_of, keys_of, kill_a_rank, newest_manifest, printed_row
from lead_trainer.example_worlds.nuplan.tree import ExampleTree, write_example_tree

EPOCHS = 8
TREE = ExampleTree(logs=4, seconds=4, blobs_every=20, size=(54, 96), cars=2)
CACHE_DATA = {"cameras": ["CAM_F0", "CAM_B0"], "image_size": [32, 48], "val_share": 0.5}
CONFIG = {
    "data": {**CACHE_DATA, "stride_s": 1.0},
    "model": {"bev_channels": 16, "image_channels": 8, "pillar_channels": 8},
    "loss": {"weighting": "learned"},
    "batch_size": 2,
}


def shrink(cache: dict[str, Any], run: dict[str, Any]) -> None:
    cache["config"] = {"preset": "tiny", "data": CACHE_DATA}
    run["config"] = CONFIG
    run["stages"][0]["epochs"] = EPOCHS


@pytest.fixture(scope="module")
def example(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, Any]]]:
    """The cache and the run of `crds/examples/nuplan.yaml` by kind, small, over logs in the bucket."""
    tree = tmp_path_factory.mktemp("nuplan")
    write_example_tree(tree, TREE)
    with applied_example(installed, "nuplan", tree, shrink) as found:
        yield found


def test_the_example_of_the_recipe_nuplan_trains_through_a_kill_and_ends_with_a_report(
    installed: Installed, example: dict[str, dict[str, Any]]
) -> None:
    cache, run = (example[kind]["metadata"]["name"] for kind in ("DatasetCache", "TrainingRun"))
    built = installed.wait_for_phase("datasetcache", cache, "Ready", deadline_s=600)
    assert built["routes"]["kept"] == 4 and built["samples"] == 16
    installed.wait_for("an epoch", lambda: epoch_of(installed, run) >= 1, deadline_s=600)
    shown = printed_row(installed, run)
    assert shown["STAGE"] == "train" and shown["EPOCH"].endswith(f"/{EPOCHS}") and float(shown["LOSS"]) > 0, shown

    kill_a_rank(installed, run, rank=1)
    status = installed.wait_for_phase("trainingrun", run, "Succeeded", deadline_s=600)
    assert status["restarts"]["total"] == 1, conditions(status)
    trained, measured = status["stages"]
    assert (
        measured["phase"] == "Succeeded"
        and {"val/mAP", "val/mIoU", "val/ADE"} <= measured["progress"]["metrics"].keys()
    )

    with installed.store() as store:
        weights, report = (newest_manifest(store, installed, run, stage) for stage in ("train", "test"))
        assert weights["epoch"] == report["epoch"] == EPOCHS and report["is_report"]
        assert report["metrics"] == {name: value for name, value in weights["metrics"].items() if name[:4] == "val/"}
        assert report["files"].keys() == {"report.json", "report.md", "config.json", "val_overview_0000000.png"}
        found = json.loads(store.get(report["files"]["report.json"]["key"], max_bytes=2**20))
        prefix = keys_of(installed, run, "test").checkpoints_prefix
        assert measured["checkpoint"]["uri"].endswith(report["files"]["report.md"]["key"].rpartition("/")[0] + "/")
        assert report["files"]["report.md"]["key"].startswith(prefix)
    assert found["differing"] == [] and found["trained"]["step"] == trained["checkpoint"]["step"]
