"""A stage of kind Evaluation: the numbers that training logged, to the bit, and a report in place of a checkpoint."""

import json
import queue
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from lead_protocol.exit_codes import ExitCode
from lead_protocol.job import InitFrom, TrainJob
from lead_protocol.manifests import CheckpointManifest
from lead_protocol.object_keys import InstanceKeys
from lead_protocol.progress_record import parse_progress
from lead_protocol.store.folder import FolderStore
from lead_testing import toy_recipe
from lead_testing.toy_jobs import KEYS, UID, a_toy_job, manifests
from lead_testing.toy_runs import toy_recipe_installed, toy_recipe_with, train_group, train_here
from lead_trainer.contract.benchmark import Benchmark, Evaluated
from lead_trainer.engine.attempt.location import RunLocation
from lead_trainer.engine.attempt.run import run_attempt
from lead_trainer.engine.group.agreement import done_by_first, report_work
from lead_trainer.engine.group.ddp import Group
from lead_trainer.engine.group.stop import StopFlag
from lead_trainer.engine.reporting.progress import ProgressWriter
from lead_trainer.errors import BadConfig, Fenced, NoValidCheckpoint, StopRequested
from lead_trainer.world import World

CONFIG = {"validation_samples": 20}
TEST = InstanceKeys("team-a", UID, "test", 0)
WEIGHTS = InitFrom(manifests_prefix=KEYS.manifests_prefix)


def an_evaluation(attempt: int = 1, *, epochs: int = 2, **fields: Any) -> TrainJob:
    wanted: dict[str, Any] = {"config": CONFIG, "init_from": WEIGHTS, **fields}
    return a_toy_job(attempt, epochs=epochs, stage="test", evaluates=True, **wanted)


def trained(folder: Path, **config: Any) -> FolderStore:
    store = FolderStore(folder / "store")
    train_here(store, folder / "train", a_toy_job(epochs=2, config={**CONFIG, **config}))
    return store


def files_of(store: FolderStore, manifest: CheckpointManifest) -> dict[str, bytes]:
    return {name: store.get(file.key, max_bytes=10**6) for name, file in manifest.files.items()}


def test_an_evaluation_finds_the_logged_numbers_and_commits_its_report_alone(tmp_path: Path) -> None:
    store = trained(tmp_path, ema_decay=0.9)
    train_here(store, tmp_path / "test", an_evaluation(config={**CONFIG, "ema_decay": 0.9}))
    (committed,), weights = manifests(store, TEST), manifests(store)[-1]
    logged = {name: value for name, value in weights.metrics.items() if name.startswith("val/")}
    assert committed.metrics == logged and set(logged) == {"val/loss", "val/bias", "val/rmse"}
    assert (committed.final, committed.is_report, committed.epoch, committed.step) == (True, True, 2, 3)
    files = files_of(store, committed)
    assert set(files) == {"report.json", "report.md", "config.json"}
    report = json.loads(files["report.json"])
    assert report["differing"] == [] and report["trained"]["step"] == weights.step == 12
    assert report["weights"] == report["trained"]["validated"] == "ema_0001.pth"
    assert b"all 3 logged numbers are found again, bit for bit" in files["report.md"]


def test_what_an_evaluation_reports_is_its_batches_and_its_metrics(tmp_path: Path) -> None:
    store = trained(tmp_path)
    train_here(store, tmp_path / "test", an_evaluation())
    last = parse_progress((tmp_path / "test/termination-log").read_bytes())
    assert last is not None and (last.phase, last.step, last.steps, last.epoch, last.epochs) == ("Done", 3, 3, 2, 2)
    assert last.metrics == manifests(store, TEST)[0].metrics and last.loss == last.metrics["val/loss"]


def test_ranks_measure_together_what_ranks_trained_also_after_one_is_killed(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    assert train_group(tmp_path, a_toy_job(epochs=1, config=CONFIG, processes=2), 2) == [0, 0]
    assert -9 in train_group(tmp_path, an_evaluation(epochs=1, processes=2), 2, signal="KILL:v2:0")
    assert manifests(store, TEST) == []
    assert train_group(tmp_path, an_evaluation(attempt=2, epochs=1, processes=2), 2) == [0, 0]
    (committed,), weights = manifests(store, TEST), manifests(store)[-1]
    assert committed.metrics.items() <= weights.metrics.items() and committed.world_size == committed.attempt == 2
    assert json.loads(files_of(store, committed)["report.json"])["differing"] == []


def test_a_stopped_evaluation_commits_nothing_and_the_next_attempt_measures_again(tmp_path: Path) -> None:
    store = trained(tmp_path)
    assert train_here(store, tmp_path / "test", an_evaluation(), stop_in_validation=2) is ExitCode.STOPPED
    assert manifests(store, TEST) == []
    assert train_here(store, tmp_path / "test", an_evaluation(attempt=2)) is ExitCode.DONE
    assert [one.attempt for one in manifests(store, TEST)] == [2]


def test_a_report_that_is_committed_is_measured_once(tmp_path: Path) -> None:
    store = trained(tmp_path)
    train_here(store, tmp_path / "test", an_evaluation())
    (first,) = manifests(store, TEST)
    # Nothing is evaluated: the first batch would raise the stop flag.
    assert train_here(store, tmp_path / "test", an_evaluation(attempt=2), stop_in_validation=1) is ExitCode.DONE
    assert manifests(store, TEST) == [first]


def test_a_late_attempt_does_not_commit_beside_its_successor(tmp_path: Path) -> None:
    store = trained(tmp_path)
    train_here(store, tmp_path / "test", an_evaluation(attempt=2))
    with pytest.raises(Fenced):
        train_here(store, tmp_path / "late", an_evaluation(attempt=1))
    assert [one.attempt for one in manifests(store, TEST)] == [2]


def test_a_damaged_report_is_set_aside_and_measured_again(tmp_path: Path) -> None:
    store = trained(tmp_path)
    train_here(store, tmp_path / "test", an_evaluation())
    (tmp_path / "store" / manifests(store, TEST)[0].files["report.md"].key).write_bytes(b"cut")
    train_here(store, tmp_path / "test", an_evaluation(attempt=2))
    damaged, again = manifests(store, TEST)
    assert (damaged.attempt, again.attempt) == (1, 2) and again.metrics == damaged.metrics
    assert files_of(store, again)["report.md"] != b"cut"


def test_weights_without_a_validation_split_cannot_be_measured(tmp_path: Path) -> None:
    store = trained(tmp_path)
    with pytest.raises(BadConfig, match="the config has no validation split to measure on"):
        train_here(store, tmp_path / "test", an_evaluation(config={}))


@pytest.mark.parametrize("begins", ["init_from", "resume_from"])
def test_no_training_begins_with_a_report(tmp_path: Path, begins: str) -> None:
    store = trained(tmp_path)
    train_here(store, tmp_path / "test", an_evaluation())
    job = a_toy_job(stage="next", **{begins: InitFrom(manifests_prefix=TEST.manifests_prefix)})
    with pytest.raises(NoValidCheckpoint, match="it is the report of an evaluation and holds no"):
        train_here(store, tmp_path / "next", job)


def benchmark_of(measure: Callable[[Evaluated[Any]], None] = lambda run: None) -> Benchmark[Any]:
    """Returns a benchmark of four batches."""

    def measured(run: Evaluated[Any]) -> dict[str, int]:
        for _ in run.counted(range(4), 4):
            measure(run)
        return {"batches": 4}

    return Benchmark(splits=("val",), measure=measured)


def records_written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Returns a list that fills with phase, step and steps of what is reported."""
    seen: list[tuple[str, int, int]] = []
    plain = ProgressWriter.update

    def update(self: ProgressWriter, **fields: Any) -> None:
        plain(self, **fields)
        seen.append((self.record.phase, self.record.step, self.record.steps))

    monkeypatch.setattr(ProgressWriter, "update", update)
    return seen


def test_a_recipes_own_benchmark_reports_each_batch_after_those_of_the_validation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, seen = trained(tmp_path), records_written(monkeypatch)
    with toy_recipe_with(benchmark=benchmark_of()):
        train_here(store, tmp_path / "test", an_evaluation())
    steps = [(step, steps) for phase, step, steps in seen if phase == "Evaluating"]
    assert steps == [(1, 3), (2, 3), (3, 3), (4, 7), (5, 7), (6, 7), (7, 7)]
    assert manifests(store, TEST)[0].step == 3  # batches of the validation


def test_a_benchmark_that_is_stopped_commits_nothing(tmp_path: Path) -> None:
    store, stop = trained(tmp_path), StopFlag()

    def ask_to_stop(run: Evaluated[Any]) -> None:
        stop.raised = True

    here = RunLocation(store, tmp_path / "scratch", termination_log=tmp_path / "termination-log")
    with (
        toy_recipe_installed(tmp_path),
        toy_recipe_with(benchmark=benchmark_of(ask_to_stop)),
        pytest.raises(StopRequested, match="nothing is committed"),
    ):
        run_attempt(an_evaluation(), here, Group(World(), torch.device("cpu")), stop)
    assert manifests(store, TEST) == []


def test_of_many_metrics_a_status_shows_those_the_recipe_chooses_then_the_short_ones(tmp_path: Path) -> None:
    plain = toy_recipe.RECIPE.validation
    assert plain is not None

    def many(config: Any, means: Any) -> dict[str, float]:
        classes = {f"AP/{name}": 0.5 for name in "abcdefghijklmnopqrst"}
        return {**means, **classes, "mAP": 0.4, "error_of_b": 0.1, "ways_detected": 0.2, "zz": 0.3}

    validation = replace(plain, summary=many, shown=("ways_detected", "AP/t", "not_measured"))
    with toy_recipe_with(validation=validation):
        store = trained(tmp_path)
        train_here(store, tmp_path / "test", an_evaluation())
    shown = parse_progress((tmp_path / "test/termination-log").read_bytes())
    training = parse_progress((tmp_path / "train/termination-log").read_bytes())
    assert shown is not None and training is not None and len(shown.metrics) == 16
    letters = [f"val/AP/{name}" for name in "abcdefghi"]
    expected = [
        "val/ways_detected",
        "val/AP/t",
        "val/zz",
        "val/mAP",
        "val/bias",
        "val/loss",
        "val/error_of_b",
        *letters,
    ]
    assert list(shown.metrics) == expected == list(training.metrics)
    assert len(manifests(store, TEST)[0].metrics) == 26


class OneOfTwo:
    """A rank of a group of two; what rank 0 says goes through a queue."""

    def __init__(self, rank: int, said: "queue.Queue[Any]") -> None:
        self.world, self.said = World(rank, rank, 2, 0, 2, "", 0), said

    def from_first(self, value: Any) -> Any:
        if not self.world.is_first:
            return self.said.get(timeout=60)
        self.said.put(value)
        return value


def test_ranks_that_wait_for_a_long_benchmark_wait_on_while_rank_0_is_at_it() -> None:
    said: queue.Queue[Any] = queue.Queue()
    first, second = (cast(Group, OneOfTwo(rank, said)) for rank in (0, 1))

    def work() -> int:
        report_work(first)
        report_work(first)
        return 7

    assert done_by_first(first, work) == 7
    assert done_by_first(second, work) == 7 and said.empty()
