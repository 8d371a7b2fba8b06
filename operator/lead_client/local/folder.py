"""The folder of a local run, and what is recorded in it beside checkpoints.

<folder>/<run>/.run/manifest.json   the manifest, the keys of this machine, and the working directory
<folder>/<run>/.run/state.json      which stages have ended, and how; written by the worker alone
<folder>/<run>/.run/worker.lock     held for as long as the worker lives; its content is the worker's process id
<folder>/<run>/.run/<stage>-s<seed>.log
<folder>/<run>/<stage>-s<seed>/     the logdir of `lead train`
<folder>/.caches/<name>.json        the manifest of a DatasetCache
"""

import fcntl
import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

CACHES = ".caches"
_RECORDS = ".run"


@dataclass(frozen=True)
class Ended:
    """How the training of one stage and seed ended."""

    exit_code: int
    message: str = ""


@dataclass
class State:
    """What the worker has done."""

    ended: dict[str, Ended] = field(default_factory=dict)  # by stage instance
    times: dict[str, list[str]] = field(default_factory=dict)  # of begin and end, RFC 3339
    suspended: bool = False


@dataclass(frozen=True)
class RunFolder:
    """Paths and records of one local run."""

    root: Path

    @property
    def manifest(self) -> Path:
        """The manifest as it was submitted."""
        return self.root / _RECORDS / "manifest.json"

    @property
    def records(self) -> Path:
        """What is removed when the run is deleted."""
        return self.root / _RECORDS

    def logdir(self, instance: str) -> Path:
        """Where one stage and seed has its results."""
        return self.root / instance

    def log(self, instance: str) -> Path:
        """What one stage and seed has logged."""
        return self.records / f"{instance}.log"

    def keys(self, instance: str) -> Path:
        """The keys of one stage and seed, for `lead train --config`."""
        return self.records / f"{instance}.yaml"

    def initial_weights(self, instance: str) -> Path:
        """Folder of the weights that one stage and seed begins with."""
        return self.records / f"{instance}.weights"

    def read(self) -> dict[str, Any]:
        """Returns the manifest's record: `manifest`, `here`, `directory`."""
        return read_json(self.manifest)

    def state(self) -> State:
        """Returns what the worker has done so far."""
        with suppress(FileNotFoundError):
            found = read_json(self.records / "state.json")
            ended = {name: Ended(**each) for name, each in found["ended"].items()}
            return State(ended, found["times"], found["suspended"])
        return State()

    def write_state(self, state: State) -> None:
        """Replaces the worker's record."""
        ended = {name: vars(each) for name, each in state.ended.items()}
        write_json(self.records / "state.json", {"ended": ended, "times": state.times, "suspended": state.suspended})

    def lock(self) -> TextIO | None:
        """Takes the worker's lock and writes this process' id into it; None where another process holds it."""
        file = (self.records / "worker.lock").open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        return file

    def worker(self) -> int | None:
        """Returns the process id of the living worker."""
        with suppress(FileNotFoundError), (self.records / "worker.lock").open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(file.read() or 0) or None
        return None


def read_json(path: Path) -> dict[str, Any]:
    """Returns a record of ours; raises FileNotFoundError."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Writes a file as a whole: a reader sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".part", delete=False, encoding="utf-8") as file:
        json.dump(document, file, indent=2)
    Path(file.name).replace(path)
