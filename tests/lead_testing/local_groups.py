"""`lead train` in a group of processes on this machine, as torchrun would start it; any of them can kill itself."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from lead_protocol.manifests import CheckpointManifest
from lead_protocol.store.folder import FolderStore
from lead_testing.ports import free_port
from lead_testing.toy_jobs import manifests, run_together
from lead_trainer.engine.checkpoints.instances import instances
from lead_trainer.local.store import NAMESPACE, PRIVATE_FOLDER, UID

SECONDS = 300
Kill = tuple[int, int]  # rank, and the call of the recipe's part in which it kills itself


def train_in_group(
    words: list[str], ranks: int, kill: Kill = (0, 0), site: Path | None = None, *, within: str = "step"
) -> list[int | None]:
    """Trains with `words`; returns the exit codes by rank, negative for one that a signal ended.

    `within` is the part of the recipe that `kill` counts: step, or evaluate, a batch of a validation. `site` is a
    folder on the module search path, with recipes of somebody else's.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["lead_trainer.commands.train", "lead_trainer.recipes.lead.recipe", "lead_trainer.recipes.distill.recipe",
         "lead_trainer.recipes.world.validation", "lead_trainer.recipes.nuplan.validation", "torch._dynamo"]
    )  # fmt: skip
    port = free_port()
    group = [
        context.Process(target=_rank, args=(words, rank, ranks, port, kill, site, within)) for rank in range(ranks)
    ]
    return run_together(group, SECONDS)


def newest_manifest(logdir: Path, seed: int = 0) -> CheckpointManifest:
    """Returns the newest checkpoint of a local run."""
    store = FolderStore(logdir / PRIVATE_FOLDER)
    (keys,) = [keys for keys in instances(store, NAMESPACE, UID) if keys.seed == seed]
    return manifests(store, keys)[-1]


def _rank(words: list[str], rank: int, ranks: int, port: int, kill: Kill, site: Path | None, within: str) -> None:
    import torch

    from lead_trainer.cli import main
    from lead_trainer.contract.installed import load_recipe

    if site is not None:
        sys.path.insert(0, str(site))
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_PORT": str(port)}
    name = next((word.removeprefix("recipe=") for word in words if word.startswith("recipe=")), "lead")
    recipe, calls = load_recipe(name), 0

    def deadly(part: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            if (rank, calls) == kill:
                os.kill(os.getpid(), signal.SIGKILL)
            return part(*arguments)

        return call

    validation = recipe.validation
    if within == "step":
        recipe_here = replace(recipe, step=deadly(recipe.step))
    else:
        assert validation is not None
        recipe_here = replace(recipe, validation=replace(validation, evaluate=deadly(validation.evaluate)))
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get("RECIPE") is recipe:
            module.RECIPE = recipe_here  # type: ignore[attr-defined]
    os._exit(main(["train", *words]))
