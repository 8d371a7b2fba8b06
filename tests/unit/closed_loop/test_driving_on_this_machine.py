"""`lead closed-loop` drives with the newest weights by a command of the user's; a scripted one stands for CARLA."""

import fcntl
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lead_testing.toy_runs import toy_recipe_installed
from lead_trainer.cli import main
from lead_trainer.closed_loop.comfort import comfort_of
from lead_trainer.commands.train import train_locally
from lead_trainer.errors import BadData
from lead_trainer.local.store import PRIVATE_FOLDER

SIMULATOR = """\
import json, os, pathlib, sys
weights = sorted(p.name for p in pathlib.Path(os.environ["LEAD_CLOSED_LOOP_CHECKPOINT"]).iterdir())
out = pathlib.Path(os.environ["LEAD_CLOSED_LOOP_RESULTS"])
assert not list(out.iterdir()), "left by an earlier drive"
mode = sys.argv[1]
scores = {"score_route": 100.0, "score_penalty": 1.0, "score_composed": float(mode)}
record = {"route_id": os.environ["LEAD_CLOSED_LOOP_ROUTES"], "status": "Completed", "infractions": {},
          "scores": scores, "meta": {"route_length": 100.0}}
(out / "result.json").write_text(json.dumps({"_checkpoint": {"progress": [1, 1], "records": [record]}}))
rows = "".join(f"{t / 10},{t * t / 100},0\\n" for t in range(5))
(out / "ego_motion.csv").write_text("time_s,vx_mps,vy_mps\\n" + rows)
print(*weights)
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    """The logdir of a toy run of one epoch; the simulator's script lies beside it."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    (tmp_path / "simulator.py").write_text(SIMULATOR)
    with toy_recipe_installed(tmp_path):
        train(tmp_path / "run", 1)
        yield tmp_path / "run"
    for number, handler in handlers.items():
        signal.signal(number, handler)


def train(logdir: Path, epochs: int) -> None:
    train_locally(["recipe=toy", f"logdir={logdir}", f"epochs={epochs}"], [], {})


def drive(run: Path, mode: str, *options: str) -> int:
    command = f"{sys.executable} {run.parent / 'simulator.py'} {mode}"
    return main(["closed-loop", str(run), "--command", command, "--routes", "town", *options])


def test_n_36_results_lie_below_the_epoch_and_a_second_call_drives_nothing(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert drive(run, "80") == 0
    printed = capsys.readouterr().out
    assert "driving_score" in printed and "max_jerk" in printed
    (summary,) = run.glob("closed_loop/train-s*/0001/summary.json")
    assert json.loads(summary.read_text())["summary"]["driving_score"] == 80.0
    assert (summary.parent / "simulator.log").read_text().split()[0] == "config.json"
    assert drive(run, "0") == 0  # would be a lower score
    assert "was driven already" in capsys.readouterr().out


def test_a_drop_below_the_best_before_ends_in_1(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert drive(run, "80", "--max-drop", "5") == 0
    assert "no earlier evaluation" in capsys.readouterr().out
    train(run, 2)
    assert drive(run, "70", "--max-drop", "5") == 1
    assert "REGRESSION: driving_score 70, best before 80" in capsys.readouterr().out
    assert drive(run, "70", "--max-drop", "15") == 0
    assert drive(run, "70", "--max-drop", "1", "--metric", "driving_skore") == 64
    assert "driving_score" in capsys.readouterr().err


def test_two_drives_of_one_run_do_not_mix_their_results(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (run / PRIVATE_FOLDER / "closed_loop.lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert drive(run, "80") == 64
    assert "another process drives with the weights" in capsys.readouterr().err
    assert not (run / "closed_loop").exists()
    assert drive(run, "80") == 0


def test_a_drive_that_hangs_ends_with_all_it_started(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hang = run.parent / "hang.sh"  # a shell, whose start takes no seconds on a busy machine
    hang.write_text('sleep 600 &\necho $! > "$LEAD_CLOSED_LOOP_RESULTS/../child"\nwait\n')
    assert main(["closed-loop", str(run), "--command", f"sh {hang}", "--timeout", "4"]) == 65
    assert "did not end within --timeout 4 s" in capsys.readouterr().err
    (child,) = run.glob("closed_loop/*/0001/child")
    state = Path(f"/proc/{child.read_text()}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"  # nobody may have reaped it yet
    assert not list(run.glob("closed_loop/*/0001/summary.json"))
    assert drive(run, "60") == 0  # begins anew


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--command", "no-such-simulator"], "--command: found 'no-such-simulator'"),
        (["--command", "false"], "the simulator ended with exit status 1"),
        (["--command", "true"], "no result file of the Leaderboard"),
        (["--command", "true", "--timeout", "0"], "--timeout: found 0"),
        (["--command", "true", "--stage", "later"], "--stage: found 'later', expected one of train"),
        ([], "--command is missing"),
    ],
)
def test_each_mistake_is_one_sentence(
    run: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["closed-loop", str(run), *options]) in (64, 65)
    assert message in capsys.readouterr().err


def test_n_49_comfort_is_of_first_differences(tmp_path: Path) -> None:
    log = tmp_path / "ego_motion.csv"
    log.write_text("time_s,vx_mps,vy_mps\n" + "".join(f"{t / 10},{(t / 10) ** 2},3\n" for t in range(11)))
    found = comfort_of(log)  # v = t²: a = 2t between ticks, jerk 2
    assert found.max_acceleration == pytest.approx(1.9)
    assert found.max_jerk == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time_s,vx_mps\n", "no column vy_mps"),
        ("time_s,vx_mps,vy_mps\n0,0,0\n1,1,1\n", "2 rows, expected at least 3"),
        ("time_s,vx_mps,vy_mps\n0,0,0\n0,1,1\n1,2,2\n", "row 2: time_s is 0 after 0"),
        ("time_s,vx_mps,vy_mps\n0,0,0\n1,nan,1\n2,2,2\n", "row 2: vx_mps is 'nan'"),
    ],
)
def test_a_motion_log_is_refused_by_row_and_column(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "ego_motion.csv").write_text(text)
    with pytest.raises(BadData, match=message):
        comfort_of(tmp_path / "ego_motion.csv")
