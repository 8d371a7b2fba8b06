"""The recipe `distill` on a real Argoverse 2 scenario: cache, three seeds, a student that beats constant velocity."""

import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest

from lead_protocol.progress_record import parse_progress
from lead_testing import shared_dir
from lead_testing.installed import Installed, upload_tree
from lead_testing.live_runs import keys_of, newest_manifest
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_trainer.cli_evaluate import MODEL, evaluate_checkpoint

PREFIX, RUN, SEEDS = "datasets/av2", "av2", (42, 123, 456)
ARGOVERSE2 = {"preset": "tiny", "benchmark": "argoverse2", "input_type": "vector", "all_agents": True}
SMALL_INPUT = {"max_agents": 8, "max_polylines": 16, "polyline_points": 8}
TRAINING = {"batch_size": 16, "lr": 2.0e-3, "patience": 0, "best_metric": "val/ade"}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real scenario as a split to train on, all its tracks, and as one to validate on, its focal track."""
    found = sorted((shared_dir() / "realdata/av2/test_data/forecasting_scenarios").glob("*"))
    if not found:
        pytest.skip("the real Argoverse 2 scenario is absent: realdata/av2 of the folder beside the checkout")
    root = tmp_path_factory.mktemp("argoverse2")
    for split in ("train", "val"):
        (root / split).mkdir()
        shutil.copytree(found[0], root / split / found[0].name)
    return root


@pytest.fixture(scope="module")
def finished(installed: Installed, tree: Path) -> dict[str, Any]:
    """The status of a run with three seeds, after its end."""
    with installed.store() as store:
        for folder in sorted(tree.glob("*/*")):
            upload_tree(store, folder, f"{PREFIX}/{folder.relative_to(tree).as_posix()}")
    prepared = {**ARGOVERSE2, "polyline_points": SMALL_INPUT["polyline_points"]}
    cache = a_dataset_cache("av2", PREFIX, recipe="distill", collections=[], config=prepared)
    config = {key: value for key, value in {**ARGOVERSE2, **SMALL_INPUT, **TRAINING}.items() if key != "preset"}
    run = a_training_run(
        RUN,
        "av2",
        recipe="distill",
        preset=ARGOVERSE2["preset"],
        config=config,
        nodes=1,
        stages=[{"name": "train", "epochs": 60, "seeds": list(SEEDS)}],
        checkpoint={"everyEpochs": 30},
    )
    installed.apply(cache, run)
    return installed.wait_for_phase("trainingrun", RUN, "Succeeded", deadline_s=1200)


def test_status_tells_mean_and_deviation_of_the_validation_ade_over_the_seeds(
    installed: Installed, finished: dict[str, Any]
) -> None:
    assert [(s["seed"], s["phase"], s["attempt"]) for s in finished["stages"]] == [
        (seed, "Succeeded", 1) for seed in SEEDS
    ]
    best = []
    with installed.store() as store:
        for seed in SEEDS:
            record = parse_progress(store.get(keys_of(installed, RUN, "train", seed).progress(1), max_bytes=2**16))
            assert record is not None and record.best_by == "val/ade" and record.best_metric is not None
            best.append(record.best_metric)
    (told,) = finished["seedStatistics"]
    assert (told["stage"], told["seeds"], told["text"]) == ("train", len(SEEDS), f"{told['mean']} ± {told['std']}")
    assert float(told["mean"]) == pytest.approx(statistics.fmean(best), rel=1e-3)
    assert float(told["std"]) == pytest.approx(statistics.stdev(best), rel=1e-2, abs=1e-3)


def test_every_students_training_windows_beat_constant_velocity(
    installed: Installed, finished: dict[str, Any], tree: Path, tmp_path: Path
) -> None:
    for seed in SEEDS:
        weights = _fetched(installed, seed, tmp_path / str(seed))
        words = [f"argoverse2_root={tree}", f"logdir={tmp_path / 'cache'}"]
        results = evaluate_checkpoint(weights, words, "train", tmp_path / f"{seed}.parquet", {})
        ade = {name: totals.means()["minADE_1"] for name, totals in results.overall.items()}
        assert results.agents > 10
        assert ade[MODEL] < ade["constant velocity"], f"seed {seed}: {ade}"


def _fetched(installed: Installed, seed: int, folder: Path) -> Path:
    """Brings the newest weights of a seed and their config.json into `folder`; returns the weights' path."""
    folder.mkdir()
    with installed.store() as store:
        manifest = newest_manifest(store, installed, RUN, "train", seed)
        for name in (manifest["parts"]["model"], "config.json"):
            file = manifest["files"][name]
            store.download(file["key"], folder / name, size=file["size"], sha256=file["sha256"])
    return folder / str(manifest["parts"]["model"])
