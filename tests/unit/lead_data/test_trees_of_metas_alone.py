"""A tree of metas without LEAD's persistent cache beside them: what is missing is named in one sentence."""

from pathlib import Path

import pytest

from lead_protocol.exit_codes import ExitCode
from lead_trainer.cli import main
from lead_trainer.example_worlds.lead.tree import write_example_tree


@pytest.mark.parametrize("command", ["cache", "buckets"])
def test_a_tree_of_metas_says_what_must_be_restored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    write_example_tree(tmp_path / "tree", routes=2, frames=3)
    for file in (tmp_path / "tree/data").rglob("*"):
        if file.is_file() and file.parent.name != "metas":
            file.unlink()
    assert main([command, "preset=demo", f"carla_root={tmp_path / 'tree'}", "use_depth=false"]) == ExitCode.BAD_DATA
    (said,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert said.startswith(
        "error: of 2 routes only metas are left, as after LEAD's persistent cache was built, and no entry of it "
        "lies in cache/: put that folder beside data/"
    )
    assert "restore results.json and the folders rgb, rgb_perturbated, semantics, semantics_perturbated, hdmap" in said
    assert "depth" not in said
