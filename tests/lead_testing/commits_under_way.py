"""Something that happens at a chosen moment of a commit of the toy recipe, while the steps after it run."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from lead_protocol.store.object_store import StoreDenied
from lead_testing.toy_recipe import Calls
from lead_trainer.engine.checkpoints import checkpoint
from lead_trainer.engine.checkpoints.checkpoint import stage_files
from lead_trainer.engine.checkpoints.commit import Checkpointer
from lead_trainer.engine.checkpoints.retry_budget import RetryBudget
from lead_trainer.engine.step.state import TrainState

MOMENTS = ("before staging", "while hashing", "while uploading", "before the manifest")
DEADLINE_S = 60.0
POLL_S = 0.002


class _Begun:
    """How many steps this process had begun when it began the newest commit."""

    at_call = 0


@contextmanager
def acting(moment: str, step: int, act: Callable[[], None]) -> Iterator[None]:
    """Calls `act` once on the thread that commits the state after `step`, at that moment of it."""
    plain_call, plain_write, plain_begin = RetryBudget.call, checkpoint._HashingFile.write, Checkpointer.begin
    at = [""]

    def reach(here: str) -> None:
        if at[0] == here == moment:
            at[0] = ""
            act()

    def call(self: RetryBudget, action: Callable[..., Any], *given: Any, **options: Any) -> Any:
        name = getattr(action, "__name__", "")
        if action is stage_files and given[0].loop.step == step:
            at[0] = moment
            reach("before staging")
        if name == "create" and "/manifest/" in given[0]:
            reach("before the manifest")
        result = plain_call(self, action, *given, **options)
        if name == "create_file":
            reach("while uploading")
        return result

    def write(self: Any, data: Any) -> int:
        count: int = plain_write(self, data)
        reach("while hashing")
        return count

    def begin(self: Checkpointer, state: TrainState) -> None:
        _Begun.at_call = Calls.steps
        plain_begin(self, state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpointer, "begin", begin)
        patch.setattr(RetryBudget, "call", call)
        patch.setattr(checkpoint._HashingFile, "write", write)
        yield


def see(what: str, condition: Callable[[], bool]) -> None:
    """Waits for something to be so; raises TimeoutError where it does not become so."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not seen in {DEADLINE_S:.0f} s: {what}")
        time.sleep(POLL_S)


def let_steps_pass(count: int = 2) -> None:
    """Waits until so many steps were begun since the commit was, and so all but one of them were ended."""
    seen = _Begun.at_call + count
    see(f"step call {seen}", lambda: Calls.steps >= seen)


def die_after_steps() -> None:
    """Ends the process as the kernel ends it, some steps later."""
    let_steps_pass()
    os.kill(os.getpid(), signal.SIGKILL)


def be_denied() -> None:
    """Raises what a store raises whose key was withdrawn."""
    raise StoreDenied("AccessDenied: the key was withdrawn")


def be_denied_after_steps() -> None:
    """Raises, some steps later, what `be_denied` raises."""
    let_steps_pass()
    be_denied()


def ask_to_stop_after_steps() -> None:
    """Sends this process SIGTERM some steps later."""
    let_steps_pass()
    os.kill(os.getpid(), signal.SIGTERM)


killed_at = partial(acting, act=die_after_steps)
stopped_at = partial(acting, act=ask_to_stop_after_steps)
slowed_at = partial(acting, act=let_steps_pass)
