"""Files of a folder that processes share: which one a name means, whether it is locked, and removal where it is not.

Used by `packed_backend`.
"""

import fcntl
import os
import weakref
from pathlib import Path

FileIdentity = tuple[int, int]  # device and inode


class HeldFile:
    """A file that is open under a shared lock, until nothing refers to this object."""

    def __init__(self, path: Path) -> None:
        """Waits for the lock; raises FileNotFoundError."""
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)  # which frees the lock
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)
        self.status = os.fstat(self._descriptor)

    def read(self, offset: int, length: int) -> bytes:
        """Returns the bytes at a place, fewer where the file ends; raises OSError where its disk fails."""
        return os.pread(self._descriptor, length, offset)


def remove_unlocked(path: Path) -> bool:
    """Removes a file that nobody has locked; returns whether it is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)


def identity(status: os.stat_result) -> FileIdentity:
    """Returns what identifies a file, as long as it is open somewhere."""
    return status.st_dev, status.st_ino


def file_at(path: Path) -> FileIdentity | None:
    """Returns which file has a name now, None where there is none or its disk gives no answer."""
    try:
        return identity(path.stat())
    except OSError:  # gone, or its disk is
        return None


def is_locked(path: Path) -> bool:
    """Returns whether somebody holds a file's lock alone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
