"""Files that appear whole or not at all: written as `.part`, synced, then renamed or linked.

Called by both stores for everything they write to disk. A part file is locked while its writer lives, so a later writer
can recognise one that a killed process left behind, and removes it.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from lead_protocol.store.object_store import StoreFull

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}  # errors of a full disk, for this user or this file
SUFFIX = ".part"
PIECE_BYTES = 1024 * 1024
STALE_AFTER_S = 600.0  # younger ones may just be between their creation and their lock


class PartialFile:
    """An open `.part` file that becomes visible by `replace` or `link`, or vanishes."""

    def __init__(self, handle: BinaryIO, path: Path) -> None:
        self.handle = handle
        self.path = path

    def reserve(self, size: int) -> None:
        """Takes the room for `size` bytes now, so that a full disk shows before the transfer, not at its end."""
        if size:
            os.posix_fallocate(self.handle.fileno(), 0, size)

    def write(self, data: bytes) -> None:
        """Appends bytes."""
        self.handle.write(data)

    def write_at(self, offset: int, data: bytes) -> None:
        """Writes bytes at their place, from any thread; not beside `write`."""
        left = memoryview(data)
        while left:
            written = os.pwrite(self.handle.fileno(), left, offset)
            offset, left = offset + written, left[written:]

    def pieces_at(self, offset: int, length: int) -> Iterator[memoryview]:
        """Yields what was written at a place, in pieces; each is overwritten by the next."""
        buffer, end = memoryview(bytearray(min(length, PIECE_BYTES))), offset + length
        while offset < end:
            read = os.preadv(self.handle.fileno(), [buffer[: end - offset]], offset)
            if not read:
                raise OSError(errno.EIO, "the file is shorter than what was written to it", str(self.path))
            yield buffer[:read]
            offset += read

    def replace(self, target: Path) -> None:
        """Makes the synced bytes visible under `target`, replacing what was there."""
        self._sync()
        self.path.replace(target)
        sync_folder(target.parent)

    def link(self, target: Path) -> bool:
        """Makes the synced bytes visible under `target` if that name is free; returns whether it was."""
        self._sync()
        try:
            os.link(self.path, target)
        except FileExistsError:
            return False
        sync_folder(target.parent)
        return True

    def _sync(self) -> None:
        self.handle.flush()
        os.fsync(self.handle.fileno())


@contextmanager
def partial_file(folder: Path, name: str) -> Iterator[PartialFile]:
    """Yields a new locked part file in `folder`; whatever is not published when the body ends is removed."""
    folder.mkdir(parents=True, exist_ok=True)
    remove_stale_parts(folder)
    short = name.encode()[:100].decode(errors="ignore")  # a file name has at most 255 bytes
    path = folder / f"{short}.{secrets.token_hex(8)}{SUFFIX}"
    with path.open("x+b") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield PartialFile(handle, path)
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def full_disk_named(path: Path) -> Iterator[None]:
    """Raises StoreFull where its body finds no room for `path`; other errors of the disk stay what they are."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise StoreFull(f"no room left for {path} ({error.strerror}); free space there") from error


def remove_stale_parts(folder: Path) -> None:
    """Removes part files whose writer is dead: old enough, and nobody holds their lock."""
    for entry in os.scandir(folder):
        if not entry.name.endswith(SUFFIX):
            continue
        with contextlib.suppress(FileNotFoundError, BlockingIOError):  # published meanwhile, or its writer lives
            if time.time() - entry.stat().st_mtime < STALE_AFTER_S:
                continue
            with Path(entry.path).open("rb") as handle:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                Path(entry.path).unlink()


def sync_folder(folder: Path) -> None:
    """Makes a rename or link in `folder` outlive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
