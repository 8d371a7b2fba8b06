"""`lead bench data` on a small cache: every stage is measured and tells what it covered, and nothing of it stays."""

import json
import re
from pathlib import Path

import pytest

from lead_trainer.cli import main
from lead_trainer.example_worlds.lead.tree import write_example_tree


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("example")
    write_example_tree(folder, routes=1, frames=8, seed=0)
    return folder


@pytest.mark.parametrize("keeps", [True, False])
def test_a_caches_stages_are_measured_and_explained(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], keeps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    words = ["preset=demo", f"carla_root={tree}", f"logdir={tmp_path / 'out'}", "batch_size=2", "num_threads=2"]
    words += [f"session_cache={tmp_path / 'ssd'}"] if keeps else []
    seconds = "0.1" if keeps else "1"  # in which every record is read, one by one
    assert main(["bench", "data", "--seconds", seconds, *words]) == 0
    told = capsys.readouterr()
    stages = ["network", "disk", "decode", "hand-over", "step"] if keeps else ["network", "decode", "hand-over", "step"]
    rows = re.findall(r"│ (\S+) +│ +([0-9.]+) +│ +([0-9.]+) +│ (.*?) +│", told.out)
    assert [row[0] for row in rows] == stages and all(float(row[1]) > 0 for row in rows)
    assert ("1 of 1 shards" if keeps else "6 of 6 records, one by one") in rows[0][3]
    assert "Bound by" in told.out and ("in every epoch" not in told.out or not keeps)
    events = [json.loads(line)["event"] for line in told.err.splitlines() if line.startswith("{")]
    told_of = [event.removeprefix("bench: ") for event in events if event.startswith("bench: ")]
    assert [stage for stage in told_of if "still" not in stage] == ["tables of the cache", *stages]
    assert not (tmp_path / "ssd").exists() or not list((tmp_path / "ssd").iterdir())
    assert [path.name for path in (tmp_path / "out").iterdir()] == []
