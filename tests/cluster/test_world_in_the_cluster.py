"""The recipe `world` on a real cluster: its example manifest, from raw scenes to the last epoch, through a kill.

Only sizes are changed: a preset for one CPU core, and two pods without GPUs.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from lead_testing.installed import Installed, conditions
from lead_testing.live_examples import applied_example
from lead_testing.live_runs import epoch_of, kill_a_rank, newest_manifest, printed_row
from lead_testing.manifests import SMALL
from lead_trainer.example_worlds.world.tree import ExampleTree, write_example_tree

EPOCHS = 40
TREE = ExampleTree(train=6, val=2, keyframes=10, size=(48, 64), without_can=1)
DATA = {"image_size": [32, 32], "sequence_length": 4}
CONFIG = {
    "data": DATA,
    "loss": {"perceptual_weight": 0.0},
    "training": {"batch_size": 4},
    "model": {"decoder": {"init_size": 4}},
}


def shrink(cache: dict[str, Any], run: dict[str, Any]) -> None:
    cache["config"] = {"preset": "tiny", "data": {"image_size": DATA["image_size"]}}
    run["config"] = CONFIG
    run["stages"][0]["epochs"] = EPOCHS


@pytest.fixture(scope="module")
def example(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, Any]]]:
    """The cache and the run of `crds/examples/world.yaml` by kind, small, over scenes in the bucket."""
    tree = tmp_path_factory.mktemp("nuscenes")
    write_example_tree(tree, TREE)
    with applied_example(installed, "world", tree, shrink) as found:
        yield found


def test_the_example_of_the_recipe_world_trains_through_a_kill(
    installed: Installed, example: dict[str, dict[str, Any]]
) -> None:
    cache, run = (example[kind]["metadata"]["name"] for kind in ("DatasetCache", "TrainingRun"))
    built = installed.wait_for_phase("datasetcache", cache, "Ready", deadline_s=600)
    assert (built["routes"], built["samples"]) == ({"kept": 8, "total": 8}, 80)
    installed.wait_for("two epochs", lambda: epoch_of(installed, run) >= 2, deadline_s=600)
    shown = printed_row(installed, run)
    assert shown["PHASE"] == "Running" and shown["EPOCH"].endswith(f"/{EPOCHS}") and float(shown["LOSS"]) > 0, shown

    kill_a_rank(installed, run, rank=1)
    status = installed.wait_for_phase("trainingrun", run, "Succeeded", deadline_s=600)
    assert status["restarts"]["total"] == 1, conditions(status)
    assert printed_row(installed, run)["RESTARTS"] == "1"

    with installed.store() as store:
        manifest = newest_manifest(store, installed, run, "train")
    assert manifest["epoch"] == EPOCHS and manifest["metrics"]["val/psnr"] > 5.0
    assert manifest["metrics"]["metric/latent_spread"] > 0.5


def test_w_51_the_guides_commands_run_in_a_container_of_the_trainer_image(
    installed: Installed, images: dict[str, str]
) -> None:
    command = "python -m lead_trainer.recipes.world"
    few = "--batch-size=2 --loss.perceptual_weight=0 --data.num_workers=1 --preset=tiny --epochs=1"
    script = f"""set -e
cd /tmp
lead example-data data/nuscenes recipe=world train=2 val=1 keyframes=11 height=48 width=64
{command} prepare_dataset --dataset nuscenes --data-root data/nuscenes --image-size 64 64
{command} train --config configs/training/base.yaml --data-root data/processed/nuscenes {few}
ls runs
"""
    installed.kubectl("delete", "pod", "guide", "--ignore-not-found", "--wait")
    installed.apply(a_pod("guide", images["trainer"], ["sh", "-c", script]))

    def ended() -> str:
        phase = str(installed.get("pod", "guide").get("status", {}).get("phase", ""))
        return phase if phase in ("Succeeded", "Failed") else ""

    phase, log = installed.wait_for("the guide's commands", ended, 600), installed.kubectl("logs", "guide")
    installed.run("kubectl", "delete", "pod", "guide", "--wait=false")
    assert phase == "Succeeded" and {"report.md", "report.json"} <= set(log.split()), log


def a_pod(name: str, image: str, command: list[str]) -> dict[str, Any]:
    """Returns a pod of the restricted profile that runs a command once."""
    container = {
        "name": "main",
        "image": image,
        "command": command,
        "resources": SMALL,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "env": [{"name": "HOME", "value": "/tmp"}],
    }
    security = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"restartPolicy": "Never", "securityContext": security, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
