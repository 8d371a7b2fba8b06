"""Several seeds by one command, the learning-rate sweep, the comparison of two runs' speed, the export of the best."""

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from lead_protocol.exit_codes import ExitCode
from lead_protocol.object_keys import InstanceKeys
from lead_protocol.store.folder import FolderStore
from lead_testing.toy_runs import toy_recipe_installed
from lead_trainer.cli import main
from lead_trainer.commands.compare_perf import perf_record
from lead_trainer.commands.export import Address, parse_address
from lead_trainer.commands.train import train_locally
from lead_trainer.engine.attempt.lr_finder import sweep
from lead_trainer.engine.reporting.perf_record import PerfRecord
from lead_trainer.errors import BadConfig
from lead_trainer.local.store import NAMESPACE, PRIVATE_FOLDER, UID


@pytest.fixture(autouse=True)
def toy(tmp_path: Path) -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    with toy_recipe_installed(tmp_path):
        yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_one_command_trains_every_seed_and_tells_mean_and_spread(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["recipe=toy", f"logdir={tmp_path / 'run'}", "seeds=[3,5]", "epochs=1"]
    train_locally(words, [], {})
    told = capsys.readouterr().out
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"seed_3", "seed_5"}
    losses = []
    for seed in (3, 5):
        (key,) = (tmp_path / f"run/seed_{seed}/.lead").rglob("manifest/*.json")
        manifest = json.loads(key.read_text())
        assert manifest["seed"] == seed
        losses.append(manifest["metrics"]["loss"])
    assert losses[0] != losses[1]
    found = re.search(r"  loss +([0-9.e+-]+) ± ([0-9.e+-]+)", told)
    assert found is not None and "2 seeds" in told
    assert float(found[1]) == pytest.approx(sum(losses) / 2, rel=1e-4)
    assert float(found[2]) == pytest.approx(abs(losses[0] - losses[1]) / 2**0.5, rel=1e-2)
    train_locally(words, [], {})  # a second call finds both done
    with pytest.raises(BadConfig, match="seeds: found 'many'"):
        train_locally([*words[:2], "seeds=many"], [], {})


def test_the_suggested_rate_lies_within_a_decade_of_the_best_for_a_parabola() -> None:
    weight = 1.0

    def step(rate: float) -> float:
        nonlocal weight
        loss = weight**2
        weight -= rate * 2 * weight
        return loss

    curve = sweep(step, 1e-5, 10.0, 60)
    best = curve.suggestion()
    assert best is not None and 0.05 <= best <= 5.0  # one step of rate 0.5 ends in the minimum
    assert len(curve.rates) < 60  # it ended where the loss grew
    assert sweep(lambda rate: 1.0 + rate, 1e-3, 1.0, 50).suggestion() is None
    with pytest.raises(ValueError, match="0 < min-lr < max-lr"):
        sweep(step, 1.0, 0.1, 10)


def noisy_parabola(seed: int, noise: float) -> tuple[Callable[[float], float], float]:
    """Returns the steps of one of many problems of 20 weights, and the rate beyond which they diverge."""
    draws = np.random.default_rng(seed)
    bend = 10 ** draws.uniform(-1.5, 1.5, 20)
    weights = draws.normal(size=20) / np.sqrt(bend)

    def step(rate: float) -> float:
        nonlocal weights
        loss = float((bend * weights**2).mean() + 0.3 * noise * draws.normal())
        weights = weights - rate * (bend * weights + noise * np.sqrt(bend) * draws.normal(size=20))
        return loss

    return step, 2.0 / float(bend.max())


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3])
def test_the_suggestion_for_a_hundred_noisy_parabolas_is_neither_too_low_nor_divergent(noise: float) -> None:
    found = []
    for seed in range(100):
        step, limit = noisy_parabola(seed, noise)
        best = sweep(step, 1e-6, 10.0, 100).suggestion()
        found += [] if best is None else [best / limit]
    assert len(found) >= 97 and min(found) > 0.01 and max(found) < 1.0


def test_loss_that_is_noise_alone_suggests_nothing() -> None:
    draws = np.random.default_rng(0)
    found = [sweep(lambda _: float(draws.normal(5.0, 1.0)), 1e-6, 1.0, 100).suggestion() for _ in range(100)]
    assert found.count(None) >= 90


def test_the_command_suggests_a_rate_at_which_a_run_learns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["lr-find", "recipe=toy", f"logdir={tmp_path}", "batch_size=8", "--steps", "80", "--max-lr", "10"]
    assert main(words) == 0
    rate = float(capsys.readouterr().out.rpartition("suggestion: lr=")[2])
    assert 1e-3 <= rate <= 1.0


def test_the_sweep_of_a_run_writes_its_curve_and_commits_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logdir = tmp_path / "out"
    words = ["lr-find", "recipe=toy", f"logdir={logdir}", "batch_size=8", "--steps", "20", "--max-lr", "0.5"]
    assert main(words) == 0
    rows = (logdir / "lr_curve.csv").read_text().splitlines()
    assert rows[0] == "lr,loss,smoothed_loss" and 10 < len(rows) <= 21
    assert float(rows[1].split(",")[0]) == pytest.approx(1e-6)
    told = capsys.readouterr().out
    assert "suggestion: lr=" in told or "no suggestion" in told
    assert not list((logdir / ".lead").rglob("manifest/*.json"))
    assert main([*words, "--min-lr", "1.0"]) == 64 or "expected 0 < --min-lr" in capsys.readouterr().err


def a_record(folder: Path, samples_per_s: float) -> Path:
    record = PerfRecord(
        samples_per_s=samples_per_s, step_s=8 / samples_per_s, step_p90_s=8 / samples_per_s, waiting_share=0.1,
        steps=50, batch_size=8, ranks=1, device="cpu", precision="float32", torch_version="2", git_revision="",
    )  # fmt: skip
    folder.mkdir()
    (folder / "perf.json").write_text(record.model_dump_json())
    return folder / "perf.json"


def test_of_a_folder_the_record_that_was_written_last_is_compared(tmp_path: Path) -> None:
    objects = tmp_path / "run" / PRIVATE_FOLDER
    later = InstanceKeys(NAMESPACE, UID, "train-baseline", 7).perf(1), InstanceKeys(NAMESPACE, UID, "train", 7).perf(12)
    earlier = InstanceKeys(NAMESPACE, UID, "train-reasoning", 7).perf(1)
    for age, (key, speed) in enumerate([(earlier, 1.0), (later[1], 2.0), (later[0], 3.0)]):
        (objects / key).parent.mkdir(parents=True, exist_ok=True)
        path = a_record(tmp_path / f"record{age}", speed).rename(objects / key)
        os.utime(path, (1_000_000 + age, 1_000_000 + age))
    assert perf_record(tmp_path / "run").samples_per_s == 3.0


def test_a_slower_run_ends_the_comparison_in_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fast, slow = a_record(tmp_path / "a", 100.0), a_record(tmp_path / "b", 75.0)
    assert main(["compare-perf", str(fast), str(slow), "--max-drop", "0.2"]) == 1
    assert "too slow: B trains 25.0% slower than A" in capsys.readouterr().out
    assert main(["compare-perf", str(fast), str(slow), "--max-drop", "0.3"]) == 0
    assert main(["compare-perf", str(slow), str(fast)]) == 0
    (tmp_path / "c").mkdir()
    (tmp_path / "c/perf.json").write_text("{}")
    assert main(["compare-perf", str(fast), str(tmp_path / "c/perf.json")]) != 0
    assert "is no speed record of a run" in capsys.readouterr().err


def test_a_run_leaves_a_record_that_can_be_compared_with_itself(tmp_path: Path) -> None:
    logdir = tmp_path / "run"
    train_locally(["recipe=toy", f"logdir={logdir}", "epochs=2"], [], {})
    assert main(["compare-perf", str(logdir), str(logdir)]) == 0


def test_the_best_averaged_weights_are_exported_under_the_models_name(tmp_path: Path) -> None:
    logdir = tmp_path / "run"
    train_locally(["recipe=toy", f"logdir={logdir}", "epochs=3", "ema_decay=0.5", "validation_samples=8"], [], {})
    store = FolderStore(logdir / ".lead")
    manifests = [json.loads(path.read_text()) for path in sorted((logdir / ".lead").rglob("manifest/*.json"))]
    best = min(manifests, key=lambda manifest: manifest["metrics"]["val/loss"])
    assert main(["export", str(logdir), str(tmp_path / "bundle"), "--best"]) == 0
    (exported,) = (tmp_path / "bundle").glob("model_*.pth")
    name = best["parts"]["model"]
    assert exported.name == name.replace(".pth", "_0.pth")
    stored = best["files"][best["parts"]["ema"]]
    assert exported.read_bytes() == store.get(stored["key"], max_bytes=10**6)


def test_an_address_is_exported_as_a_status_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train_locally(["recipe=toy", f"logdir={tmp_path / 'run'}", "epochs=2"], [], {})
    root = tmp_path / "run/.lead"
    first, last = (json.loads(path.read_text()) for path in sorted(root.rglob("manifest/*.json")))
    instance = first["files"]["config.json"]["key"].partition("checkpoints/")[0]
    for manifest, address in (
        (first, f"file://{root}/{first['files']['config.json']['key'].removesuffix('config.json')}"),
        (last, f"file://{root}/{instance}"),
        (last, f"file://{root}/runs/local/local"),
    ):
        bundle = tmp_path / f"bundle-{address.count('/')}"
        assert main(["export", address, str(bundle)]) == 0
        (exported,) = bundle.glob("model_*.pth")
        key = manifest["files"][manifest["parts"]["model"]]["key"]
        assert exported.read_bytes() == (root / key).read_bytes()
    for words, told in (
        (["--best"], "--best asks for another"),
        (["--store", "s3://other"], "--store names s3://other"),
        (["--stage", "other"], "the run has"),
    ):
        address = f"file://{root}/{first['files']['config.json']['key'].removesuffix('/config.json')}"
        assert main(["export", address, str(tmp_path / "none"), *words]) == ExitCode.BAD_CONFIG
        assert told in capsys.readouterr().err
    assert main(["export", f"{address[:-12]}000000000000", str(tmp_path / "none")]) == ExitCode.BAD_DATA
    assert "was removed since" in capsys.readouterr().err
    assert main(["export", "s3://lead/runs/team-a", str(tmp_path / "none")]) == ExitCode.BAD_CONFIG
    assert "status.stages[].checkpoint.uri" in capsys.readouterr().err


@pytest.mark.parametrize("store", [None, "s3://lead", "s3://lead/some/prefix", "s3://lead/runs"])
@pytest.mark.parametrize("namespace", ["team-a", "runs"])
def test_an_address_is_taken_apart_wherever_its_store_begins(store: str | None, namespace: str) -> None:
    keys = InstanceKeys(namespace, "6a1b8f04-52a7", "pre-s1-train", 2)
    whole = keys.checkpoint(12, 1, "7c1e90ab42d3")
    root = f"{store}/" if store else ""
    assert parse_address(f"{root}{whole}") == Address(store, namespace, keys.uid, keys, whole)
    assert parse_address(f"{root}{keys.prefix}") == Address(store, namespace, keys.uid, keys)
    assert parse_address(f"{root}runs/{namespace}/{keys.uid}") == Address(store, namespace, keys.uid)


def test_seeds_trained_by_one_command_are_exported_as_one_ensemble(tmp_path: Path) -> None:
    train_locally(["recipe=toy", f"logdir={tmp_path / 'run'}", "epochs=1", "seeds=[0,1,2]"], [], {})
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "bundle")]) == 0
    names = sorted(path.name for path in (tmp_path / "bundle").iterdir())
    assert names == ["config.json", "model_0000_0.pth", "model_0000_1.pth", "model_0000_2.pth"]
    for seed in (0, 1, 2):
        trained = tmp_path / f"run/seed_{seed}/model_0000.pth"
        assert (tmp_path / f"bundle/model_0000_{seed}.pth").read_bytes() == trained.read_bytes()
