"""The block of a step for a person at a terminal, the event file, and metrics with names of any kind."""

import errno
import io
import json
import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import structlog
import torch
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from lead_protocol.exit_codes import ExitCode
from lead_protocol.progress_record import MESSAGE_CHARS, parse_progress
from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import StoreUnavailable
from lead_testing.toy_jobs import a_toy_job, manifests, progress_record
from lead_testing.toy_recipe import RECIPE, ToyModel
from lead_testing.toy_runs import toy_recipe_with, train_here
from lead_testing.transcripts import UNKNOWN_KEY
from lead_trainer.contract.installed import load_recipe
from lead_trainer.contract.step import StepOutput
from lead_trainer.engine.group.stop import StopFlag
from lead_trainer.engine.reporting.progress_block import progress_block
from lead_trainer.engine.step.batch_norms import BatchNorms
from lead_trainer.engine.step.clip import Clipper
from lead_trainer.engine.step.optimizers import Optimizers
from lead_trainer.engine.step.ranking import Ranking
from lead_trainer.engine.step.state import TrainState
from lead_trainer.engine.worker import final_message, write_final_report
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.report import live as live_module
from lead_trainer.report import tensorboard
from lead_trainer.report.console import EPOCH_DONE, open_log
from lead_trainer.report.live import EpochSoFar, Live, duration
from lead_trainer.report.sinks import Sinks
from lead_trainer.report.tensorboard import EventFile
from lead_trainer.world import World


def a_state() -> TrainState:
    model = ToyModel(0.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    ranking = Ranking("val/loss")
    ranking.judge({"val/loss": 0.25}, 2, 20)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    return TrainState(
        model,
        model,
        Optimizers(optimizer),
        scaler,
        Clipper(),
        BatchNorms(model),
        ranking,
        step=25,
        epoch=2,
        step_in_epoch=5,
    )


def test_the_block_says_where_a_run_is_and_how_well_it_does() -> None:
    output = StepOutput(torch.tensor(1.5), {"loss_plane": torch.tensor(0.5)}, {"psnr": torch.tensor(20.0)})
    block = progress_block(a_state(), output, 0.125, epochs=4, steps=10, stage="learning")
    for words in ("epoch 3/4", "step 5/10  stage learning", "[############............]", "loss 1.5", "loss_plane 0.5",
                  "psnr 20", "lr 0.0003", "0.125 s/step", "skipped 0", "best val/loss 0.25 after epoch 2"):  # fmt: skip
        assert words in block
    assert "GPU" not in block  # there is none
    assert "stage" not in progress_block(a_state(), output, 0.125, epochs=4, steps=10, stage="")


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_log_gets_a_line_every_half_minute_of_an_epoch() -> None:
    clock = Clock()
    live, shown = Live(terminal=False, clock=clock), []
    with structlog.testing.capture_logs() as told:
        for step in range(1, 101):
            clock.now += 1.0
            if live.due():
                shown.append(step)
                live.show(EpochSoFar(epoch=1, epochs=2, step=step, steps=100, loss=1.23456789, eta_s=75.0))
    assert shown == [30, 60, 90]
    assert told[0] == {"event": "in epoch", "log_level": "info", "epoch": 1, "of": 2, "step": 30, "steps": 100,
                       "loss": 1.235, "eta_s": 75.0}  # fmt: skip
    live.end()
    assert not live.due(), "the epoch's own line has just been written"


def test_a_terminal_gets_a_bar_that_is_gone_after_the_epoch() -> None:
    clock, drawn = Clock(), io.StringIO()
    live = Live(terminal=True, clock=clock, console=Console(file=drawn, force_terminal=True, width=100))
    clock.now = 1.0
    assert live.due()
    live.show(EpochSoFar(epoch=3, epochs=4, step=5, steps=10, loss=0.25, samples_per_s=1.564, eta_s=1209.0))
    live.end()
    live.end()
    assert "epoch 3/4" in drawn.getvalue() and "5/10" in drawn.getvalue()
    assert "loss 0.25, 1.6 samples/s, 20 min left" in drawn.getvalue() and "_s" not in drawn.getvalue()
    assert drawn.getvalue().endswith("\x1b[2K"), "the line is erased"


def test_a_time_is_said_in_two_units() -> None:
    seconds = (0.4, 45, 89, 90, 1209, 5399, 5400, 19200, 172_800, 273_600)
    said = ["0 s", "45 s", "89 s", "2 min", "20 min", "1 h 30 min", "1 h 30 min", "5 h 20 min", "2 d 0 h", "3 d 4 h"]
    assert [duration(one) for one in seconds] == said


def test_a_run_shows_its_steps_while_an_epoch_lasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "LOG_EVERY_S", 0.0)
    with structlog.testing.capture_logs() as told:
        train_here(FolderStore(tmp_path / "store"), tmp_path, a_toy_job(epochs=1))
    lines = [line for line in told if line["event"] == "in epoch"]
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6] and all(line["loss"] > 0 for line in lines)


@pytest.mark.parametrize(("best", "shown", "numbers"), [((2.0, 1), "best='this epoch'", 4), ((1.5, 0), "best=1.5", 6)])
def test_a_person_sees_each_number_of_an_epoch_once_and_a_machine_all_of_them(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    best: tuple[float, int],
    shown: str,
    numbers: int,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    values = {"loss": 1031.2888793945312, "val/loss": 2.0, **{f"val/part_{number}": 0.1 for number in range(12)}}
    for machine in (False, True):
        open_log(json_lines=machine)
        structlog.get_logger().info(EPOCH_DONE, epoch=1, of=2, step=8, skipped=0, best=best[0], best_epoch=best[1],
                                    **values)  # fmt: skip
    person, line = capsys.readouterr().err.splitlines()
    assert len(re.findall(r"=\d", person)) == numbers and shown in person
    assert "1031.29" in person and "part_" not in person
    assert json.loads(line)["loss"] == 1031.29 and json.loads(line)["val/part_11"] == 0.1


def test_histograms_hold_the_finite_values(tmp_path: Path) -> None:
    events = EventFile(tmp_path / "events", FolderStore(tmp_path / "store"), "tb/", attempt=1, first_step=0, on=True)
    events.histogram("weights/layer", torch.tensor([1.0, 2.0, float("nan")]), 3)
    events.histogram("weights/spoiled", torch.tensor([float("nan")]), 3)
    events.close()
    read = EventAccumulator(str(tmp_path / "events"))
    read.Reload()
    assert read.Tags()["histograms"] == ["weights/layer"]
    (histogram,) = read.Histograms("weights/layer")
    assert (histogram.step, histogram.histogram_value.num) == (3, 2)


def test_an_attempt_that_begins_anew_hides_the_steps_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for attempt, steps in ((1, 4), (2, 2)):
        host = f"attempt-{attempt}"  # files of one second are read in the order of their hosts' names
        monkeypatch.setattr("socket.gethostname", lambda host=host: host)
        events = EventFile(tmp_path, FolderStore(tmp_path / "s"), "tb/", attempt=attempt, first_step=0, on=True)
        for step in range(1, steps + 1):
            events.scalars({"loss": float(attempt)}, step)
        events.close()
    read = EventAccumulator(str(tmp_path))
    read.Reload()
    assert [(event.step, event.value) for event in read.Scalars("loss")] == [(1, 2.0), (2, 2.0)]


def test_a_try_that_begins_anew_in_one_process_hides_the_steps_of_the_one_before(tmp_path: Path) -> None:
    for value, steps in ((1.0, 4), (2.0, 2)):
        events = EventFile(tmp_path, None, "tb/", attempt=1, first_step=0, on=True)
        for step in range(1, steps + 1):
            events.scalars({"loss": value}, step)
        events.close()
    read = EventAccumulator(str(tmp_path))
    read.Reload()
    assert [(event.step, event.value) for event in read.Scalars("loss")] == [(1, 2.0), (2, 2.0)]


def test_a_run_that_begins_in_the_folder_of_another_hides_none_of_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for process, steps in ((100, 4), (200, 2)):
        monkeypatch.setattr("os.getpid", lambda process=process: process)
        events = EventFile(tmp_path, None, "tb/", attempt=1, first_step=0, on=True)
        for step in range(1, steps + 1):
            events.scalars({"loss": float(process)}, step)
        events.close()
    read = EventAccumulator(str(tmp_path))
    read.Reload()
    assert [event.step for event in read.Scalars("loss") if event.value == 100.0] == [1, 2, 3, 4]


class CountingStore(FolderStore):
    """A store that notes what is put into it, in order."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.puts = list[tuple[str, int]]()

    def put(self, key: str, data: bytes) -> None:
        self.puts.append((key, len(data)))
        super().put(key, data)


def test_no_copy_of_a_long_run_is_larger_than_a_file_and_none_is_made_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorboard, "LARGE_BYTES", 2000)
    store = CountingStore(tmp_path / "store")
    events = EventFile(tmp_path / "events", store, "tb/", attempt=1, first_step=0, on=True)
    for step in range(1, 101):
        events.scalars({"loss": float(step)}, step)
        if step % 10 == 0:
            events.upload()
            events.upload()
    events.close()
    assert max(size for _, size in store.puts) < 3000 and len({key for key, _ in store.puts}) > 2
    assert len(set(store.puts)) == len(store.puts)
    read = EventAccumulator(str(tmp_path / "store/tb"))
    read.Reload()
    assert [event.step for event in read.Scalars("loss")] == list(range(1, 101))


def test_a_full_disk_costs_the_event_file_and_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(SummaryWriter, "add_scalar", full)
    monkeypatch.setattr(SummaryWriter, "close", full)
    store = FolderStore(tmp_path / "store")
    train_here(store, tmp_path, a_toy_job(epochs=2))
    assert manifests(store)[-1].final
    printed = capsys.readouterr()
    assert (printed.out + printed.err).count("the event file is off for this attempt") == 1
    (tmp_path / "file").touch()
    EventFile(tmp_path / "file/below", None, "", attempt=1, first_step=0, on=True).close()


class SlowPlace(EventFile):
    """A place whose first copy to the store takes until it is let go."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, None, "", attempt=1, first_step=0, on=False)
        self.goes_on, self.said = threading.Event(), list[str]()

    def upload(self) -> None:
        self.said.append("begun")
        assert self.goes_on.wait(30)
        self.said.append("done")

    def close(self) -> None:
        self.said.append("closed")


def test_a_stop_before_the_first_step_speaks_of_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = StopFlag()
    asked.raised = True
    monkeypatch.setattr("lead_testing.toy_runs.StopFlag", lambda: asked)
    store = FolderStore(tmp_path / "store")
    assert train_here(store, tmp_path, a_toy_job()) == ExitCode.STOPPED
    record = progress_record(store)
    assert record.message == "stopped on request before the first step; there is nothing to commit yet"
    assert not manifests(store)


def test_a_slow_upload_holds_nobody_up_and_the_last_one_comes_after_it(tmp_path: Path) -> None:
    place = SlowPlace(tmp_path)
    sinks = Sinks((place,))
    sinks.upload()
    sinks.upload()
    place.goes_on.set()
    sinks.close()
    assert place.said == ["begun", "done", "closed"]


def test_a_metric_of_any_name_is_kept_in_the_manifest_and_told_where_its_name_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    odd, plain = "error [m] of all the pedestrians, é", RECIPE.validation
    assert plain is not None
    summary = plain.summary
    store = FolderStore(tmp_path / "store")
    with toy_recipe_with(validation=replace(plain, summary=lambda config, means: {**summary(config, means), odd: 1.0})):
        train_here(store, tmp_path, a_toy_job(epochs=2, config={"validation_samples": 8}))
    assert manifests(store)[-1].metrics[f"val/{odd}"] == 1.0
    record = progress_record(store)
    assert set(record.metrics) == {"val/bias", "val/loss", "val/rmse", "loss_plane"}
    printed = capsys.readouterr()
    assert (printed.out + printed.err).count("left out of the progress record") == 1


def test_the_page_shows_the_last_words_of_a_rank_with_a_wrong_key() -> None:
    world = World(world_size=2)
    with pytest.raises(BadConfig) as error:
        load_recipe("lead").config({"batchsize": 64}, "")
    assert final_message(error.value, world, "lead") == UNKNOWN_KEY
    assert final_message(error.value, world, "") == UNKNOWN_KEY.replace("lead:", "rank 0:"), "before the job is read"
    assert final_message(BadData("it ends"), world, "lead") == "rank 0: it ends"


def test_words_that_are_too_long_are_cut_and_the_record_is_left(tmp_path: Path) -> None:
    """Else the rank would end in code 1, as an error of the program, whatever its own code is."""
    long = StoreUnavailable("no good answer; " + "HTTPSConnection " * 40)
    left = tmp_path / "last-word"
    write_final_report(left, long, World(world_size=2), "lead")
    record = parse_progress(left.read_bytes())
    assert record is not None and len(record.message) == MESSAGE_CHARS
    assert record.message.startswith("rank 0: StoreUnavailable: no good answer")
