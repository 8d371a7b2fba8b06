"""A local run's folder shows the files of kept checkpoints, whatever a recipe calls them, and touches no others."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from lead_protocol.exit_codes import ExitCode
from lead_testing.toy_runs import toy_recipe_installed, toy_recipe_with
from lead_trainer.cli import main
from lead_trainer.contract.files import CheckpointAt, Files


def world_names(config: Any, at: CheckpointAt) -> Mapping[str, str]:
    """The names of a recipe that knows nothing of LEAD's."""
    epoch = at.epoch
    names = {part: f"world_{part}_{epoch:04d}.pt" for part in ("model", "optimizer", "scheduler", "scaler")}
    return {**names, "skipped": f"world_skipped_{epoch:04d}.txt"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder in which the toy recipe is installed, with names of its own."""
    monkeypatch.chdir(tmp_path)
    with toy_recipe_installed(tmp_path), toy_recipe_with(files=Files(names=world_names)):
        yield tmp_path


def train(*words: str) -> None:
    assert main(["train", "recipe=toy", "logdir=run", "keep_last=3", "keep_best=0", *words]) == ExitCode.DONE


def shown(here: Path, pattern: str = "world_model_*") -> list[str]:
    return sorted(path.name for path in (here / "run").glob(pattern))


def test_a_recipes_own_file_names_leave_with_their_checkpoints(here: Path) -> None:
    train("epochs=6")
    assert shown(here) == [f"world_model_{epoch:04d}.pt" for epoch in (3, 4, 5)]
    links = [path.stat().st_nlink for path in (here / "run").iterdir() if path.name.startswith(("world_", "config"))]
    assert len(links) == 16 and min(links) > 1, "a file of one link keeps what retention has deleted"


def test_files_that_the_run_did_not_make_stay(here: Path) -> None:
    (here / "run").mkdir()
    own = {"world_model_0099.pt", "notes.txt"}
    for name in own:
        (here / "run" / name).write_bytes(b"mine")
    train("epochs=5")
    (here / "run/world_model_0000.pt").write_bytes(b"mine")  # of a name that the run has used and taken away
    train("epochs=8")
    assert shown(here) == ["world_model_0000.pt", *(f"world_model_{epoch:04d}.pt" for epoch in (5, 6, 7, 99))]
    assert {(here / "run" / name).read_bytes() for name in (*own, "world_model_0000.pt")} == {b"mine"}


def test_a_run_that_began_again_takes_the_old_ones_files_away(here: Path) -> None:
    train("epochs=4")
    train("epochs=2", "resume=never", "lr=0.01")
    assert shown(here) == ["world_model_0000.pt", "world_model_0001.pt"]


def test_runs_of_two_kinds_in_one_folder_leave_each_others_files(here: Path) -> None:
    def of_its_kind(kind: str) -> Files[Any]:
        names = {"model": f"{kind}_{{}}.pt", "optimizer": f"o{kind}_{{}}.pt", "scheduler": f"l{kind}_{{}}.pt"}
        names |= {"scaler": f"s{kind}_{{}}.pt", "skipped": f"k{kind}_{{}}.txt"}
        return Files(
            names=lambda config, at: {part: name.format(at.epoch) for part, name in names.items()},
            run_kind=lambda config: kind,
        )

    for kind in ("world", "policy"):
        with toy_recipe_with(files=of_its_kind(kind)):
            train("epochs=4")
    assert shown(here, "world_*.pt") == [f"world_{epoch}.pt" for epoch in (1, 2, 3)]
    assert shown(here, "policy_*.pt") == [f"policy_{epoch}.pt" for epoch in (1, 2, 3)]


def test_a_name_for_the_newest_weights_leaves_when_others_are_newest(here: Path) -> None:
    def shown_names(config: Any, epoch: int, newest: bool, best: bool) -> Sequence[str]:
        told = [(f"world_newest_{epoch}.pt", newest), ("world_best.pt", best), (f"world_kept_{epoch}.pt", epoch == 2)]
        return [name for name, holds in told if holds]

    (here / "run").mkdir()
    (here / "run/world_newest_0.pth").write_bytes(b"mine")
    with toy_recipe_with(files=Files(names=world_names, shown=shown_names)):
        train("epochs=6", "validation_samples=16", "lr=0.0")  # the first epoch stays the best
    assert shown(here, "world_*.pt*") == [
        "world_best.pt", "world_kept_2.pt", "world_newest_0.pth", "world_newest_5.pt",
    ]  # fmt: skip
