"""Toy training without the start of a Python: one rank in the test's own process, or a group of forked ranks.

The fork server has torch loaded already, so a group of ranks starts in a fraction of a second.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from lead_protocol.exit_codes import ExitCode
from lead_protocol.job import TrainJob
from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import ObjectStore
from lead_testing import toy_recipe
from lead_testing.ports import free_port
from lead_testing.toy_recipe import install_toy_recipe
from lead_trainer.engine.attempt.location import RunLocation
from lead_trainer.engine.attempt.run import run_attempt
from lead_trainer.engine.group.ddp import Group
from lead_trainer.engine.group.stop import StopFlag
from lead_trainer.engine.worker import ended
from lead_trainer.errors import StopRequested
from lead_trainer.world import World

LONGEST_S = 300  # of a group: more than a busy machine takes, less than a test may


@contextmanager
def toy_recipe_installed(folder: Path) -> Iterator[None]:
    """Makes the toy recipe an installed one for as long as this is open."""
    site = str(install_toy_recipe(folder / "site"))
    sys.path.insert(0, site)
    try:
        yield
    finally:
        sys.path.remove(site)


def train_here(
    store: ObjectStore, folder: Path, job: TrainJob, *, stop_in_call: int = 0, stop_in_validation: int = 0, **place: Any
) -> ExitCode:
    """Trains one attempt and returns DONE or STOPPED.

    `stop_in_call` raises the stop flag in that step of it, `stop_in_validation` in that batch of its validations.
    """
    stop = StopFlag()
    here = RunLocation(store, folder / "scratch", termination_log=folder / "termination-log", **place)
    with toy_recipe_installed(folder), counting_calls(stop, stop_in_call, stop_in_validation):
        try:
            run_attempt(job, here, Group(World(), torch.device("cpu")), stop)
        except StopRequested:
            return ExitCode.STOPPED
    return ExitCode.DONE


@contextmanager
def toy_recipe_with(**parts: Any) -> Iterator[None]:
    """Offers the toy recipe with other parts, in this process."""
    plain = toy_recipe.RECIPE
    toy_recipe.RECIPE = replace(plain, **parts)
    try:
        yield
    finally:
        toy_recipe.RECIPE = plain


@contextmanager
def counting_calls(stop: StopFlag, step: int, evaluation: int) -> Iterator[None]:
    """Raises the stop flag in one call of the toy recipe's step or evaluation, counted from 1; 0 is none."""
    plain = toy_recipe.RECIPE
    assert plain.validation is not None
    with toy_recipe_with(
        step=_stopping(stop, plain.step, step),
        validation=replace(plain.validation, evaluate=_stopping(stop, plain.validation.evaluate, evaluation)),
    ):
        yield


def _stopping(stop: StopFlag, plain: Callable[..., Any], in_call: int) -> Callable[[Any, Any, Any], Any]:
    calls = 0

    def counting(model: Any, batch: Any, context: Any) -> Any:
        nonlocal calls
        calls += 1
        stop.raised = stop.raised or calls == in_call
        return plain(model, batch, context)

    return counting


def train_group(
    folder: Path,
    job: TrainJob,
    ranks: int,
    *,
    signal: str = "",
    open_store: Callable[[], ObjectStore] | None = None,
    around: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> list[int]:
    """Trains one attempt by a group of processes with the store in `folder`; returns their exit codes by rank.

    `signal` is what one of them sends itself; a rank that a signal ended has the negative number of it. A group that
    lost a rank is ended as the launcher would, so that no test waits for a deadline. Each rank calls `open_store` for
    another store, and trains within what `around` returns; both are pickled.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["lead_testing.toy_runs", "torch._dynamo", "torch.utils.tensorboard"])
    port = free_port()
    open_store = open_store or partial(FolderStore, folder / "store")
    processes = [
        context.Process(target=_one_rank, args=(folder, job, rank, ranks, port, signal, open_store, around))
        for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(LONGEST_S)
    for process in processes:
        process.kill()
        process.join()
    return [int(process.exitcode or 0) for process in processes]


def session_cache_of(folder: Path, rank: int) -> Path:
    """Returns where a rank of a group keeps shards, each as if on a node of its own."""
    return folder / f"session-cache-{rank}"


def _one_rank(
    folder: Path,
    job: TrainJob,
    rank: int,
    ranks: int,
    port: int,
    signal: str,
    open_store: Callable[[], ObjectStore],
    around: Callable[[], AbstractContextManager[None]],
) -> None:
    torch.set_num_threads(1)
    os.environ |= {"LEAD_TOY_SIGNAL": signal, "RANK": str(rank)}
    world = World(rank, rank, ranks, 0, ranks, "127.0.0.1", port)
    stop, code = StopFlag(), int(ExitCode.DONE)
    stop.listen_later()
    try:
        with toy_recipe_installed(folder / f"rank-{rank}"), around():
            group = Group(world, torch.device("cpu"))
            place = RunLocation(open_store(), folder / "scratch", session_cache_of(folder, rank))
            run_attempt(job, place, group, stop)
            group.close()
    except BaseException as error:
        code = ended(error, world)
    os._exit(code)
