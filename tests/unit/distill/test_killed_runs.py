"""Two ranks of the recipe `distill`: killed at random steps they end with the same bits, and they share negatives."""

import multiprocessing
import os
import random
import signal
from pathlib import Path

import torch

from lead_testing.local_groups import newest_manifest, train_in_group
from lead_trainer.recipes.distill.loss_terms.contrastive import info_nce

RANKS, EPOCHS, STEPS, SEED = 2, 2, 2, 42  # steps of an epoch
KEYS_OF_RUN = [
    "recipe=distill", "preset=tiny", "model=reasoning", "offline=true", "max_train_samples=8", "max_val_samples=2",
    f"epochs={EPOCHS}", "every_steps=1", "ema=true", "grad_clip=1.0", "gather_negatives=true", "tensorboard=false",
    "async_checkpoints=false",  # so that the step of the newest checkpoint follows from that of the kill
]  # fmt: skip


def test_d_19_and_d_29_a_group_killed_at_random_steps_ends_with_the_same_weights(tmp_path: Path) -> None:
    whole, killed = ([*KEYS_OF_RUN, f"logdir={tmp_path / name}"] for name in ("whole", "killed"))
    assert train_in_group(whole, RANKS) == [0, 0]
    at_random, done = random.Random(29), 0
    while (left := EPOCHS * STEPS - done) > 1:
        rank, call = at_random.randrange(RANKS), at_random.randint(2, left)
        assert train_in_group(killed, RANKS, (rank, call))[rank] == -signal.SIGKILL
        assert newest_manifest(tmp_path / "killed", SEED).step == done + call - 1
        done += call - 1
    assert train_in_group(killed, RANKS) == [0, 0]
    last, expected = newest_manifest(tmp_path / "killed", SEED), newest_manifest(tmp_path / "whole", SEED)
    assert (last.step, last.parameters_sha256) == (EPOCHS * STEPS, expected.parameters_sha256)
    for name in ("best", "latest"):
        shown = f"reasoning_seed{SEED}_{name}.pt"
        assert (tmp_path / "killed" / shown).read_bytes() == (tmp_path / "whole" / shown).read_bytes(), shown


def embeddings() -> tuple[torch.Tensor, torch.Tensor]:
    made = torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(0))
    return made[0], made[1]


def _share(rank: int, folder: str) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=RANKS)
    student, teacher = (whole.chunk(RANKS)[rank].clone() for whole in embeddings())
    student.requires_grad_()
    loss = info_nce(student, teacher, 0.07, gather=True)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.save((loss.detach(), student.grad), f"{folder}/rank{rank}.pt")
    torch.distributed.destroy_process_group()
    os._exit(0)


def test_d_19_negatives_of_every_process_make_the_loss_of_the_whole_batch(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    ranks = [context.Process(target=_share, args=(rank, str(tmp_path))) for rank in range(RANKS)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    student, teacher = embeddings()
    student.requires_grad_()
    whole = info_nce(student, teacher, 0.07, gather=False)
    whole.backward()  # type: ignore[no-untyped-call]
    losses, gradients = zip(
        *(torch.load(tmp_path / f"rank{r}.pt", weights_only=True) for r in range(RANKS)), strict=True
    )
    torch.testing.assert_close(torch.stack(losses).mean(), whole.detach())
    torch.testing.assert_close(torch.cat(gradients) / RANKS, student.grad)
    alone = info_nce(student.chunk(RANKS)[0], teacher.chunk(RANKS)[0], 0.07, gather=False)
    assert losses[0] > alone, "negatives of the other process count"
