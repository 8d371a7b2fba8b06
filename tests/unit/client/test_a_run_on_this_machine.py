"""`Local()`: a real run in a folder, by the calls that a cluster takes too."""

import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from lead_client import DatasetCache, Local, TrainingRun
from lead_client.errors import (
    AlreadyExists,
    CheckpointCorrupt,
    ClientError,
    InvalidObject,
    NoCheckpoint,
    NotFound,
    NotSupported,
    RunFailed,
    WaitTimeout,
)
from lead_testing.toy_jobs import toy_environment
from lead_testing.toy_runs import toy_recipe_installed

LONGEST_S = 240


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Local]:
    """A folder of runs of the toy recipe, with a cache for it."""
    for name, value in toy_environment(tmp_path, tmp_path / "unused").items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("LEAD_STORE_URL")
    with toy_recipe_installed(tmp_path):
        here = Local(tmp_path / "runs")
        here.submit(DatasetCache("points", recipe="toy", source={"prefix": "datasets/points"}, config={"samples": 16}))
        yield here
        for run in here.list():
            run.delete()


def a_run(name: str = "night", **spec: Any) -> TrainingRun:
    return TrainingRun(name, **{"recipe": "toy", "datasets": [{"cache_ref": {"name": "points"}}],
                                "stages": [{"name": "train", "epochs": 2}], **spec})  # fmt: skip


def until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LONGEST_S
    while not reached():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def test_a_run_is_trained_watched_plotted_loaded_and_listed(
    local: Local, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stages = [
        {"name": "pretrain", "epochs": 2},
        {"name": "posttrain", "epochs": 1, "init_from": {"stage": "pretrain"}, "seeds": [3, 4]},
    ]
    run = local.submit(a_run(stages=stages))
    status = run.watch(timeout=LONGEST_S)
    assert status.phase == "Succeeded" and status.stages is not None
    assert [(each.name, each.seed, each.phase) for each in status.stages] == [
        ("pretrain", 0, "Succeeded"), ("posttrain", 3, "Succeeded"), ("posttrain", 4, "Succeeded")]  # fmt: skip
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("TrainingRun night: Succeeded  posttrain  epoch 1/1  loss ") and len(lines) >= 4

    frame = run.metrics("epoch/loss")
    assert list(frame.columns) == ["epoch/loss"] and list(frame.index.names) == ["stage", "seed", "step"]
    assert list(frame.index) == [("pretrain", 0, 2), ("pretrain", 0, 4), ("posttrain", 3, 2), ("posttrain", 4, 2)]
    assert frame["epoch/loss"].notna().all() and len(run.metrics().columns) > 5
    with pytest.raises(NoCheckpoint, match="logs no 'epoch/los'; it logs epoch/loss"):
        run.metrics("epoch/los")

    assert [(each.stage, each.seed, each.epoch, each.final) for each in run.checkpoints()] == [
        ("pretrain", 0, 2, True), ("pretrain", 0, 1, False), ("posttrain", 3, 1, True), ("posttrain", 4, 1, True),
    ]  # fmt: skip
    bundle = run.download(tmp_path / "bundle", stage="pretrain")
    assert (bundle / "config.json").is_file() and len(list(bundle.iterdir())) == len(
        run.checkpoint("pretrain").manifest.files
    )
    model = run.load_model("pretrain")
    weights = torch.load(bundle / run.checkpoint("pretrain").weights_name, weights_only=True)
    assert not model.training and all(torch.equal(value, model.state_dict()[key]) for key, value in weights.items())
    with pytest.raises(ClientError, match=r"has a file .* already; choose another folder"):
        run.download(bundle, stage="pretrain")

    logged = list(run.logs())
    assert logged[0].startswith("pretrain-s0: ") and any('"epoch done"' in line for line in logged)
    assert local.list()[0].name == "night" and local.get("night").status() == status
    assert local.submit(a_run(stages=stages)).status().phase == "Succeeded"  # the same manifest again

    chosen = run.checkpoint("pretrain")
    path = run.folder.logdir("pretrain-s0") / ".lead" / chosen.manifest.files[chosen.weights_name].key
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()  # the logdir has a hard link to it
    path.write_bytes(data)
    for call in (lambda: run.download(tmp_path / "damaged", "pretrain"), lambda: run.load_model("pretrain")):
        with pytest.raises(CheckpointCorrupt, match="SHA-256"):
            call()
    assert list((tmp_path / "damaged").iterdir()) == []


def test_a_run_that_was_stopped_goes_on_from_its_checkpoint(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAD_TOY_SIGNAL", "TERM:3:0")
    run = local.submit(a_run())
    until(lambda: run.status().phase == "Suspended", "the run to stop")
    assert not run.checkpoint().final
    monkeypatch.delenv("LEAD_TOY_SIGNAL")
    run.resume()
    status = run.wait(LONGEST_S)
    assert status.phase == "Succeeded" and status.stages is not None and status.stages[0].attempt == 2


def test_suspend_stops_it_and_a_killed_worker_is_reported(local: Local) -> None:
    run = local.submit(a_run(stages=[{"name": "train", "epochs": 10_000}]))
    until(lambda: bool(run.checkpoints()), "a checkpoint")
    with pytest.raises(WaitTimeout, match=r"TrainingRun night has not ended within 0.2 s; it is Running"):
        run.wait(0.2)
    run.suspend()
    until(lambda: run.status().phase == "Suspended", "the run to stop")
    assert run.status().reason == "SuspendRequested"
    run.resume()
    worker = run.folder.worker()
    assert worker is not None
    os.killpg(worker, signal.SIGKILL)
    until(lambda: run.status().phase == "Suspended", "the end of the worker to be seen")
    assert run.status().reason == "ProcessEnded"


def test_a_wrong_key_fails_the_run_with_the_trainers_sentence(local: Local) -> None:
    with pytest.raises(RunFailed) as caught:
        local.submit(a_run(config={"batchsize": 4})).wait(LONGEST_S)
    error = caught.value
    assert error.reason == "BadConfig" and error.condition is not None and error.condition.type == "Failed"
    assert str(error).startswith("TrainingRun night: stage train-s0: batchsize: unknown key")
    assert "batch_size" in str(error)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"datasets": [{"cacheRef": {"name": "towns"}}]}, "there is no DatasetCache towns here; submit it first"),
        ({"parallelism": 2}, "spec.parallelism needs a cluster"),
        ({"checkpoint": {"from": "s3://b/x"}}, "spec.checkpoint.from needs a cluster"),
        ({"closedLoop": {"image": "x", "command": ["y"]}}, "spec.closedLoop needs a cluster"),
        ({"stages": [{"name": "t", "kind": "Evaluation", "initFrom": {"uri": "s3://b"}}]}, "use `lead evaluate`"),
        ({"stages": [{"name": "t", "initFrom": {"stage": "a"}}]}, "found 'a', expected an earlier stage: t"),
    ],
)
def test_what_only_a_cluster_can_do_is_rejected_and_nothing_is_written(
    local: Local, spec: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(NotSupported) as caught:
        local.submit(a_run(**spec))
    assert sentence in str(caught.value)
    assert local.list() == [] and not (local.folder / "night").exists()


def test_names_and_manifests_that_cannot_be_are_rejected(local: Local) -> None:
    for name in ("../night", "Night", "night_drive", "-night"):
        with pytest.raises(InvalidObject, match="expected lower case letters"):
            local.submit(a_run(name))
    with pytest.raises(NotFound, match=r"there is no run night in .*; it has none"):
        local.get("night")
    with pytest.raises(NotFound, match="there is no DatasetCache towns"):
        local.cache("towns")
    run = local.submit(a_run(suspend=True))
    assert run.status().phase == "Suspended" and local.cache("points").wait().phase == "Ready"
    with pytest.raises(AlreadyExists, match="exists with another manifest"):
        local.submit(a_run(nodes=2))
    with pytest.raises(NotSupported, match=r"a local run keeps its number of processes"):
        run.scale(3)
    with pytest.raises(NoCheckpoint, match="no checkpoint yet"):
        run.checkpoint()
    run.delete()
    with pytest.raises(NotFound):
        run.status()
    with pytest.raises(AlreadyExists, match="no run of it is recorded"):
        local.submit(a_run())  # its folder stays, as the objects of a cluster's run do


def test_fields_without_effect_are_named(local: Local) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        local.submit(a_run(suspend=True, failurePolicy={"maxRestarts": 1}, resources={"limits": {"memory": "4Gi"}}))
    assert [str(each.message) for each in caught] == [
        "TrainingRun night: without effect on this machine: failurePolicy, resources"
    ]
