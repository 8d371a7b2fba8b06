"""Real deaths of a process that writes: SIGKILL at a chosen step of a write, so that nothing cleans up behind it.

Used by tests/unit/data/test_killed_writers.py and tests/unit/store/test_killed_downloads.py. Steps are counted over all
writes of the process: a part file that was made, bytes that came into it, its sync, its rename or link, and the sync of
its folder; each before and after.
"""

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lead_protocol.store import partial_file
from lead_protocol.store.partial_file import PartialFile

_STEPS = ((PartialFile, "write"), (PartialFile, "write_at"), (PartialFile, "_sync"), (PartialFile, "replace"),
          (PartialFile, "link"), (partial_file, "sync_folder"))  # fmt: skip


@dataclass
class Steps:
    """Counts steps and dies before step `die_at`; `met` are the names of those that were reached."""

    die_at: int = -1
    met: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)  # shards are fetched side by side

    def reach(self, name: str) -> None:
        """Notes a step, or ends the process as the kernel ends it."""
        with self.lock:
            if len(self.met) == self.die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            self.met.append(name)


def count_steps(work: Callable[[], object]) -> list[str]:
    """Returns the steps of `work`, which is done in a process of its own."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        _in_child(work, Steps(), lambda steps: os.write(writing, "\n".join(steps.met).encode()))
    os.close(writing)
    with os.fdopen(reading) as pipe:
        found = pipe.read().split("\n")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return found


def kill_at(work: Callable[[], object], step: int) -> None:
    """Does `work` in a process of its own that is killed before `step`; raises AssertionError where it was not."""
    if (child := os.fork()) == 0:
        _in_child(work, Steps(step), lambda steps: None)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code == -signal.SIGKILL, f"the process ended with {code} before step {step}"


def _in_child(work: Callable[[], object], steps: Steps, tell: Callable[[Steps], Any]) -> None:
    """Ends the process without anything of pytest's: no `finally` of the parent's frames runs in it."""
    code = 1
    try:
        for owner, name in _STEPS:
            _watch(owner, name, steps)
        work()
        tell(steps)
        code = 0
    finally:
        os._exit(code)


def _watch(owner: Any, name: str, steps: Steps) -> None:
    plain = getattr(owner, name)

    def watched(*values: Any) -> Any:
        steps.reach(f"before {name}")
        found = plain(*values)
        if name == "write":
            values[0].handle.flush()  # half-written means on the disk
        steps.reach(f"after {name}")
        return found

    setattr(owner, name, watched)
