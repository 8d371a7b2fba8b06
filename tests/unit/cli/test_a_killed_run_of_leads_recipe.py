"""The recipe `lead` itself, by two ranks on a laptop: killed in the middle and started again, the same bits."""

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from lead_protocol.manifests import CheckpointManifest
from lead_protocol.object_keys import InstanceKeys
from lead_protocol.store.folder import FolderStore
from lead_testing.toy_jobs import a_free_port, manifests
from lead_trainer.cli_train import NAMESPACE, PRIVATE_FOLDER, STAGE, UID
from lead_trainer.recipes.lead.example_data.tree import write_example_tree

RANKS = 2
KEYS_OF_RUN = [
    "preset=demo", "epochs=1", "num_threads=1", "batch_size=4", "every_steps=2", "log_images_frequency=0",
    "ema_decay=0.9", "use_grad_clipper=true",
]  # fmt: skip


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("example")
    write_example_tree(folder, routes=1, frames=14, seed=0)
    return folder


def train(tree: Path, logdir: Path, *, kill_in_call: int = 0) -> list[int | None]:
    """Runs `lead train` in two processes, as torchrun would; rank 1 kills itself in that call of its step."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["lead_trainer.cli_train", "lead_trainer.recipes.lead.recipe", "torch._dynamo"])
    words = [*KEYS_OF_RUN, f"carla_root={tree}", f"logdir={logdir}"]
    port = a_free_port()
    ranks = [context.Process(target=_rank, args=(words, rank, port, kill_in_call)) for rank in range(RANKS)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(120)
        rank.kill()
        rank.join()
    return [rank.exitcode for rank in ranks]


def _rank(words: list[str], rank: int, port: int, kill_in_call: int) -> None:
    import torch

    from lead_trainer.cli import main
    from lead_trainer.recipes.lead.recipe import LeadRecipe

    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS), "MASTER_PORT": str(port)}
    calls, plain_step = 0, LeadRecipe.step

    def step(self: LeadRecipe, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if rank == 1 and calls == kill_in_call:
            os.kill(os.getpid(), signal.SIGKILL)
        return plain_step(self, *arguments)

    LeadRecipe.step = step  # type: ignore[method-assign]
    os._exit(main(["train", *words]))


def test_a_killed_group_ends_with_the_same_model(tree: Path, tmp_path: Path) -> None:
    assert train(tree, tmp_path / "whole") == [0, 0]
    assert train(tree, tmp_path / "killed", kill_in_call=3)[1] == -signal.SIGKILL
    assert (_last(tmp_path / "killed").step, _last(tmp_path / "killed").step_in_epoch) == (2, 2)
    assert train(tree, tmp_path / "killed") == [0, 0]
    last, expected = _last(tmp_path / "killed"), _last(tmp_path / "whole")
    assert (last.step, last.parameters_sha256) == (expected.step, expected.parameters_sha256)
    for name in ("model_0000.pth", "ema_0000.pth", "clipper_0000.pth"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def _last(logdir: Path) -> CheckpointManifest:
    return manifests(FolderStore(logdir / PRIVATE_FOLDER), InstanceKeys(NAMESPACE, UID, STAGE, 0))[-1]
