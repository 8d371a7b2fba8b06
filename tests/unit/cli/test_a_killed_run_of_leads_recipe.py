"""The recipe `lead` itself, by two ranks on a laptop: killed in the middle and started again, the same bits."""

import signal
from pathlib import Path

import pytest

from lead_testing.local_groups import Kill, newest_manifest, train_in_group
from lead_trainer.example_worlds.lead.tree import write_example_tree

RANKS = 2
KEYS_OF_RUN = [
    "preset=demo", "epochs=1", "num_threads=1", "batch_size=4", "every_steps=2", "log_images_frequency=0",
    "ema_decay=0.9", "use_grad_clipper=true", "async_checkpoints=false",  # the kill follows the commit at once
]  # fmt: skip


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("example")
    write_example_tree(folder, routes=1, frames=14, seed=0)
    return folder


def train(tree: Path, logdir: Path, kill: Kill = (0, 0)) -> list[int | None]:
    return train_in_group([*KEYS_OF_RUN, f"carla_root={tree}", f"logdir={logdir}"], RANKS, kill)


def test_a_killed_group_ends_with_the_same_model(tree: Path, tmp_path: Path) -> None:
    assert train(tree, tmp_path / "whole") == [0, 0]
    assert train(tree, tmp_path / "killed", kill=(1, 3))[1] == -signal.SIGKILL
    last = newest_manifest(tmp_path / "killed")
    assert (last.step, last.step_in_epoch) == (2, 2)
    assert train(tree, tmp_path / "killed") == [0, 0]
    last, expected = newest_manifest(tmp_path / "killed"), newest_manifest(tmp_path / "whole")
    assert (last.step, last.parameters_sha256) == (expected.step, expected.parameters_sha256)
    for name in ("model_0000.pth", "ema_0000.pth", "clipper_0000.pth"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
