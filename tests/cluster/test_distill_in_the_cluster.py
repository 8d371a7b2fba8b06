"""The recipe `distill`: a cache of clips in stages; on a real Argoverse 2 scenario three seeds that beat a baseline.

The cache of clips is built while the seeds train: its stages by real pods, who ran when, with what, and what `kubectl`
shows of it.
"""

import shutil
import statistics
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from lead_protocol.object_keys import BuildKeys
from lead_protocol.progress_record import parse_progress
from lead_testing import shared_dir
from lead_testing.installed import Installed, upload_tree
from lead_testing.live_runs import keys_of, newest_manifest
from lead_testing.manifests import SMALL, a_dataset_cache, a_training_run
from lead_trainer.commands.evaluate import evaluate_checkpoint
from lead_trainer.example_worlds.distill.tree import write_example_tree
from lead_trainer.recipes.distill.benchmarks.measure import MODEL

PREFIX, RUN, SEEDS = "datasets/av2", "av2", (42, 123, 456)
ARGOVERSE2 = {"preset": "tiny", "benchmark": "argoverse2", "input_type": "vector", "all_agents": True}
SMALL_INPUT = {"max_agents": 8, "max_polylines": 16, "polyline_points": 8}
TRAINING = {"batch_size": 16, "lr": 2.0e-3, "patience": 0, "best_metric": "val/ade"}

CLIPS_CACHE, CLIPS_PREFIX, SIDE, CLIPS = "clips", "datasets/clips", 32, 6
LABELLING = {"limits": {"memory": "2Gi"}, "requests": {"cpu": "50m"}}  # where a teacher of one's own would have a GPU
STAGES = [
    {"name": "extract", "workers": 2},
    {"name": "labels", "resources": LABELLING},
    {"name": "history", "after": ["extract", "labels"]},
]
WORKERS = {"extract": 2, "labels": 1, "history": 1, "merge": 1}
Pod = dict[str, Any]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """The real scenario as a split to train on, all its tracks, and as one to validate on, its focal track, if any."""
    found = sorted((shared_dir() / "realdata/av2/test_data/forecasting_scenarios").glob("*"))
    if not found:
        return None
    root = tmp_path_factory.mktemp("argoverse2")
    for split in ("train", "val"):
        (root / split).mkdir()
        shutil.copytree(found[0], root / split / found[0].name)
    return root


@pytest.fixture(scope="module")
def applied(installed: Installed, tree: Path | None) -> None:
    """The run with three seeds, begun; nothing without the real scenario."""
    if tree is None:
        return
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


@pytest.fixture(scope="module")
def finished(installed: Installed, tree: Path | None, applied: None) -> dict[str, Any]:
    """The status of the run with three seeds, after its end."""
    if tree is None:
        pytest.skip("the real Argoverse 2 scenario is absent: realdata/av2 of the folder beside the checkout")
    return installed.wait_for_phase("trainingrun", RUN, "Succeeded", deadline_s=1200)


@pytest.fixture(scope="module")
def built(installed: Installed, applied: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What kubectl printed while extract and labels were at work, by command; the cache is Ready since."""
    tree: Path = tmp_path_factory.mktemp("clips")
    write_example_tree(tree, train=CLIPS - 2, val=2, resolution=SIDE)
    shutil.rmtree(tree / "teacher_labels")
    with installed.store() as store:
        upload_tree(store, tree, CLIPS_PREFIX)
    config = {"resolution": SIDE, "teacher": "scripted"}
    build = {"parallelism": 1, "resources": SMALL, "stages": STAGES}
    installed.apply(
        a_dataset_cache(CLIPS_CACHE, CLIPS_PREFIX, recipe="distill", collections=[], config=config, build=build)
    )

    def both_at_work() -> dict[str, str] | None:
        if installed.status("dsc", CLIPS_CACHE).get("display", {}).get("stage") != "extract,labels":
            return None
        return {"get": installed.kubectl("get", "dsc", CLIPS_CACHE, "-o", "wide"),
                "describe": installed.kubectl("describe", "dsc", CLIPS_CACHE)}  # fmt: skip

    shown = installed.wait_for("extract beside labels", both_at_work)
    installed.wait_for_phase("dsc", CLIPS_CACHE, "Ready")
    return shown


def test_kubectl_shows_which_stages_are_at_work_and_what_the_others_wait_for(built: dict[str, str]) -> None:
    head, row = built["get"].splitlines()
    assert row[head.index("STAGE") :].split()[0] == "extract,labels"
    assert "waits for extract, labels" in built["describe"]


def test_each_stage_has_its_own_pods_after_those_it_waits_for(installed: Installed, built: dict[str, str]) -> None:
    assert Counter(pod["metadata"]["labels"]["lead.dev/stage"] for pod in pods_of(installed)) == WORKERS
    extract, labels, history, merge = (pods_of(installed, stage) for stage in WORKERS)
    assert max(map(begun, labels)) <= max(map(ended, extract))  # neither waits for the other
    assert max(map(begun, extract)) <= max(map(ended, labels))
    assert max(map(ended, [*extract, *labels])) <= min(map(begun, history))
    assert max(map(ended, history)) <= min(map(begun, merge))


def test_what_a_stage_asks_for_is_its_own_pods_alone(installed: Installed, built: dict[str, str]) -> None:
    """As with a GPU, which no node here has: the rest of the build's resources stay those of every pod."""
    asked = {
        pod["metadata"]["labels"]["lead.dev/stage"]: pod["spec"]["containers"][0]["resources"]
        for pod in pods_of(installed)
    }
    usual = {key: asked["extract"][key] for key in ("limits", "requests")}
    assert usual["limits"]["memory"] == SMALL["limits"]["memory"]
    assert asked["history"] == asked["merge"] == asked["extract"]
    for key, own in LABELLING.items():
        assert asked["labels"][key] == {**usual[key], **own} != usual[key]


def test_status_tells_of_each_stage_and_what_stages_made_is_gone(installed: Installed, built: dict[str, str]) -> None:
    status = installed.status("dsc", CLIPS_CACHE)
    assert [(s["name"], s["phase"], s["pods"], s["samples"]) for s in status["stages"]] == [
        (name, "Succeeded", {"done": workers, "total": workers}, {"done": CLIPS, "total": CLIPS})
        for name, workers in WORKERS.items()
    ]
    assert "stage" not in status["display"]
    uid = installed.get("dsc", CLIPS_CACHE)["metadata"]["uid"]
    with installed.store() as store:
        assert not list(store.list(BuildKeys(installed.namespace, uid).staged_prefix))
        assert list(store.list(f"caches/{installed.namespace}/{status['digest']}/"))


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
    assert (told["stage"], told["seeds"]) == ("train", len(SEEDS))
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


def pods_of(installed: Installed, stage: str = "") -> list[Pod]:
    """Returns the cache's build pods, or those of one stage; finished ones stay for their logs."""
    chosen = f",lead.dev/stage={stage}" if stage else ""
    return installed.items("pods", f"lead.dev/role=build,lead.dev/cache={CLIPS_CACHE}{chosen}")


def begun(pod: Pod) -> datetime:
    return datetime.fromisoformat(pod["metadata"]["creationTimestamp"])


def ended(pod: Pod) -> datetime:
    (container,) = pod["status"]["containerStatuses"]
    return datetime.fromisoformat(container["state"]["terminated"]["finishedAt"])
