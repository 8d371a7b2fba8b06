"""One writer at a time, across processes; the kernel frees the lock when its holder dies."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lead_testing.local_cluster.progress import say


@contextmanager
def exclusive(lock_file: Path, doing: str) -> Iterator[None]:
    """Holds the lock while the body runs; says so once where another process is `doing` the same."""
    lock_file.parent.mkdir(parents=True, exist_ok=True)
    with lock_file.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process is {doing}; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
