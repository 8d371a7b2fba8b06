"""One manifest, pretrain and then posttrain with two seeds, a rank killed in each stage, and the bundle it ends in."""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from lead_testing.installed import Installed, upload_tree
from lead_testing.live_runs import epoch_of, keys_of, kill_a_rank, newest_manifest
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_trainer.contract.installed import load_recipe
from lead_trainer.example_worlds.lead.tree import write_example_tree

RUN, SEEDS = "staged", (0, 1)
EPOCHS = {"pretrain": 4, "posttrain": 8}  # so many that a kill after the first comes before the last
INSTANCES = [("pretrain", 0), *(("posttrain", seed) for seed in SEEDS)]
STAGES = [
    {"name": "pretrain", "epochs": EPOCHS["pretrain"]},
    {
        "name": "posttrain",
        "epochs": EPOCHS["posttrain"],
        "seeds": list(SEEDS),
        "initFrom": {"stage": "pretrain"},
        "config": {"use_planning_decoder": True},
    },
]


@pytest.fixture(scope="module")
def finished(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The status of the run after its end; a rank of each stage was killed once."""
    tree = tmp_path_factory.mktemp("example")
    write_example_tree(tree, routes=4, frames=24, seed=1, failed_routes=0)
    with installed.store() as store:
        upload_tree(store, tree, "datasets/example")
    installed.apply(a_dataset_cache("example", "datasets/example"))
    installed.apply_anew(a_training_run(RUN, "example", stages=STAGES))
    for rank, stage in enumerate(("pretrain", "posttrain")):
        installed.wait_for(f"an epoch of {stage}", lambda stage=stage: epoch_of(installed, RUN, stage), deadline_s=900)
        kill_a_rank(installed, RUN, rank)
    return installed.wait_for_phase("trainingrun", RUN, "Succeeded", deadline_s=900)


def test_every_instance_succeeds_and_each_kill_costs_one_attempt(finished: dict[str, Any]) -> None:
    stages = finished["stages"]
    assert [(s["name"], s["seed"], s["phase"], s["progress"]["epoch"]) for s in stages] == [
        (*instance, "Succeeded", EPOCHS[instance[0]]) for instance in INSTANCES
    ]
    assert [s["attempt"] for s in stages] == [2, 2, 1]
    assert finished["restarts"]["total"] == 2


def test_status_tells_each_instances_figures_and_their_mean_and_deviation(finished: dict[str, Any]) -> None:
    for entry, (stage, seed) in zip(finished["stages"], INSTANCES, strict=True):
        assert f"/{stage}-s{seed}/checkpoints/" in entry["checkpoint"]["uri"]
        assert entry["progress"]["loss"] and {"best", "startTime", "completionTime"} <= set(entry)
    best = [float(entry["best"]) for entry in finished["stages"] if entry["name"] == "posttrain"]
    (told,) = finished["seedStatistics"]
    assert (told["stage"], told["seeds"]) == ("posttrain", 2)
    assert float(told["mean"]) == pytest.approx(statistics.fmean(best), rel=1e-3)
    assert float(told["std"]) == pytest.approx(statistics.stdev(best), rel=1e-2, abs=1e-3)


def test_every_instance_leaves_leads_files(installed: Installed, finished: dict[str, Any]) -> None:
    with installed.store() as store:
        for stage, seed in INSTANCES:
            last = f"{EPOCHS[stage] - 1:04d}"
            expected = {f"{part}_{last}.pth" for part in ("model", "optimizer", "scheduler", "scaler")}
            expected |= {"config.json", f"gradient_steps_skipped_{last}.txt"}
            files = newest_manifest(store, installed, RUN, stage, seed)["files"]
            assert expected <= set(files)
            assert {file["key"]: file["size"] for file in files.values()} == {
                info.key: info.size for info in store.list(_folder(files))
            }


def test_lead_export_writes_a_bundle_that_the_model_loads(
    installed: Installed, finished: dict[str, Any], tmp_path: Path
) -> None:
    keys = keys_of(installed, RUN, "posttrain")
    run, bundle = keys.prefix.removesuffix("/").rpartition("/")[0], tmp_path / "bundle"
    with installed.store_environment() as environment:
        command = [sys.executable, "-m", "lead_trainer", "export", run, str(bundle), "--store", "s3://lead"]
        subprocess.run(command, env={**os.environ, **environment}, check=True)
    names = [f"model_{EPOCHS['posttrain'] - 1:04d}_{seed}.pth" for seed in SEEDS]
    assert sorted(path.name for path in bundle.iterdir()) == ["config.json", *names]
    recipe = load_recipe("lead")
    config = recipe.config(recipe.keys.from_document(json.loads((bundle / "config.json").read_text())))
    assert config.use_planning_decoder
    states = [torch.load(bundle / name, weights_only=True) for name in names]
    for state in states:
        recipe.model(config, {}).load_state_dict(state, strict=True)
    assert any(not torch.equal(states[0][name], states[1][name]) for name in states[0])


def _folder(files: dict[str, Any]) -> str:
    """Returns the prefix below which all files of one checkpoint lie."""
    (folder,) = {file["key"].rpartition("/")[0] for file in files.values()}
    return f"{folder}/"
