"""`lead cache` on a tree with damaged files: one line with the first file, its cause, and how many more there are."""

import re
from pathlib import Path

import pytest

from lead_protocol.exit_codes import ExitCode
from lead_trainer.cli import main
from lead_trainer.data.damaged_samples import MOST, Damage, whole
from lead_trainer.errors import BadData
from lead_trainer.example_worlds.lead.tree import write_example_tree


@pytest.mark.parametrize("damaged", [["rgb/0003.jpg"], ["rgb/0003.jpg", "lidar/0005.laz", "bboxes/0006.pkl"]])
def test_a_build_names_a_damaged_file_once_and_counts_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damaged: list[str]
) -> None:
    write_example_tree(tmp_path / "tree", routes=1, frames=10)
    (route,) = (tmp_path / "tree/data").glob("*/*/")
    for name in damaged:
        (route / name).write_bytes(b"not this file")
    assert main(["cache", "preset=demo", f"carla_root={tmp_path / 'tree'}"]) == ExitCode.BAD_DATA
    (said,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    first = re.match(rf"error: file data/{route.parent.name}/{route.name}/(\S+) is not a valid ", said)
    assert first is not None and first[1] in damaged
    others = sorted({int(name[-8:-4]) for name in damaged} - {int(first[1][-8:-4])})
    assert said.count(route.name) == 1 + len(others) and "restore the file, or remove the whole route" in said
    assert ("; 2 other samples of this shard cannot be made either (" in said) == (len(others) == 2)
    assert all(f"frame {number:04d}" in said for number in others)


def test_a_long_cause_is_cut_and_a_whole_broken_shard_is_not_gone_through() -> None:
    seen = []

    def made() -> object:
        for number in range(1000):
            seen.append(number)
            yield number, Damage(f"file {number}.png: {'x' * 5000}")

    with pytest.raises(BadData) as caught:
        list(whole(made(), lambda number: f"frame {number}"))  # type: ignore[arg-type]
    assert len(seen) == MOST and len(str(caught.value)) < 600
    assert str(caught.value).startswith("file 0.png: xxx")
    assert str(caught.value).endswith(
        f"…; {MOST - 1} or more other samples of this shard cannot be made either (frame 1, frame 2, frame 3, …)"
    )
