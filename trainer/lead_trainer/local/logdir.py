"""The results' folder of a run without a cluster: made when the run is valid, and gone again where it was refused."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from lead_trainer.errors import BadConfig, BadData
from lead_trainer.local.store import PRIVATE_FOLDER

# What this process holds until its end.
_LOCKS: dict[Path, TextIO] = {}
# What an attempt leaves in its store before it trains: who it is, and how it ended.
_BEFORE_TRAINING = frozenset({"identity", "attempt", "progress"})


def make_logdir(logdir: Path) -> None:
    """Makes the results' folder; raises BadConfig where it cannot be one."""
    try:
        logdir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadConfig(f"logdir: {logdir} cannot be made a folder ({error.strerror}); choose another") from error


def hold_lock(logdir: Path, name: str, doing: str = "trains the run") -> None:
    """Locks a run for as long as this process lives; raises BadConfig where another process is `doing` the same.

    Called again by the same process it keeps what it holds: several seeds are trained one after the other.
    """
    make_logdir(logdir)
    make_logdir(logdir / PRIVATE_FOLDER)
    path = (logdir / PRIVATE_FOLDER / f"{name}.lock").resolve()
    if path in _LOCKS:
        return
    lock = path.open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise BadConfig(
            f"logdir: another process {doing} in {logdir}; wait for its end, or choose another logdir"
        ) from error
    _LOCKS[path] = lock


@contextmanager
def gone_if_refused(logdir: Path) -> Iterator[None]:
    """Removes the folders that a run made for its results, where it was refused before it trained."""
    missing = [folder for folder in (logdir, *logdir.parents) if not folder.exists()]
    try:
        yield
    except (BadConfig, BadData):
        if missing:
            with suppress(OSError):
                _remove(logdir, missing)
        raise


def _remove(logdir: Path, missing: list[Path]) -> None:
    objects = logdir / PRIVATE_FOLDER
    made = [path.relative_to(objects) for path in objects.rglob("*") if not path.is_dir()]
    if {path.name for path in logdir.iterdir()} <= {PRIVATE_FOLDER} and all(
        _BEFORE_TRAINING & set(path.parts) or path.suffix == ".lock" for path in made
    ):
        shutil.rmtree(objects, ignore_errors=True)
        for folder in missing:
            folder.rmdir()
