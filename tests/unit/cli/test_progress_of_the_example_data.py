"""`lead example-data` reports where it is in a log too: at the start, every 10 s and at the end."""

from pathlib import Path

import pytest

from lead_trainer.cli import main
from lead_trainer.commands.example_data import EVERY_S, progress_lines


def test_a_log_has_a_line_at_the_start_and_one_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    now = [100.0]
    show = progress_lines("store:datasets/demo: 4 routes of 24 frames", lambda: now[0])
    for done in range(1, 97):
        now[0] += 0.25  # 24 s in all
        show(done, 96)
    assert capsys.readouterr().err.splitlines() == [
        "store:datasets/demo: 4 routes of 24 frames: started",
        "store:datasets/demo: 4 routes of 24 frames: 40 of 96 made",
        "store:datasets/demo: 4 routes of 24 frames: 80 of 96 made",
    ]
    assert EVERY_S == 10.0


def test_the_last_line_says_what_was_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["example-data", str(tmp_path / "demo"), "--routes", "1", "--frames", "2"]) == 0
    said = capsys.readouterr()
    assert said.err.startswith(f"{tmp_path}/demo: 1 routes of 2 frames: started")
    assert "demo: 1 routes, 2 frames, " in said.out
