"""A raw dataset tree, in a bucket or in a folder, behind one small interface; used by `build` and the preparations.

The listing is taken once, when the tree is opened: it is what the cache's digest vouches for. A file that is no longer
what was listed when it is read ends the build, or a cache would hold other bytes than its name claims. Each file that
was listed or read is a sign that the work goes on, reported to `at_work`: a large tree takes hours before there is
other news.
"""

import os
import stat
import tempfile
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import structlog

from lead_protocol.store.object_store import ObjectCorrupt, ObjectNotFound, ObjectReplaced, ObjectStore
from lead_trainer.contract.raw_data import SourceFile
from lead_trainer.errors import BadData

log = structlog.get_logger(__name__)
NOT_DATA = "lost+found"  # at the root of an ext4 volume, which only root may read
MAX_FILE_BYTES = 2 * 1024 * 1024 * 1024  # the sensor data of the whole nuScenes are one JSON of some 1.2 GB
_Identity = tuple[int, int]  # device and inode
AtWork = Callable[[], None]
Entry = TypeVar("Entry")


def ignore_progress() -> None:
    """For a tree whose reader is not waited for."""


class StoreTree:
    """A tree below a prefix of an object store."""

    def __init__(self, store: ObjectStore, prefix: str, at_work: AtWork = ignore_progress) -> None:
        self._store, self._at_work = store, at_work
        self._prefix = prefix.strip("/") + "/" if prefix.strip("/") else ""
        self._lock = threading.Lock()
        self._copies: dict[str, Path] = {}

    @cached_property
    def _files(self) -> tuple[SourceFile, ...]:
        cut = len(self._prefix)
        infos = _each_reported(self._store.list(self._prefix), self._at_work)
        files = [SourceFile(i.key[cut:], i.size, i.etag) for i in infos if not i.key.endswith("/")]
        return tuple(sorted(files, key=lambda file: file.path))

    def files(self) -> Sequence[SourceFile]:
        """Returns every file, sorted by path."""
        return self._files

    def read(self, path: str) -> bytes:
        """Returns one file's bytes; raises BadData naming an object that is missing, too large, or not as listed."""
        where = f"{self._store.url}/{self._prefix}{path}"
        listed = _listed(self.__dict__.get("_files", ()), path)
        etag = listed.etag if listed is not None else ""
        try:
            data = self._store.get(self._prefix + path, max_bytes=MAX_FILE_BYTES, etag=etag)
        except ObjectReplaced as error:
            raise _changed(where) from error
        except (ObjectNotFound, ObjectCorrupt) as error:
            raise BadData(f"file {where}: {error}; restore it") from error
        self._at_work()
        if listed is not None and listed.size != len(data):
            raise _changed(where)
        return data

    def local_file(self, path: str) -> Path:
        """Returns a copy of one file, fetched once: processes that are forked later share it."""
        with self._lock:
            if path not in self._copies:
                copy = Path(self._scratch.name) / str(len(self._copies))
                copy.write_bytes(self.read(path))
                self._copies[path] = copy
            return self._copies[path]

    @cached_property
    def _scratch(self) -> "tempfile.TemporaryDirectory[str]":
        return tempfile.TemporaryDirectory(prefix="lead-tree-")


class FolderTree:
    """A tree in a folder of this machine.

    Links inside of the tree are followed. A link that leads out of it is refused with its name, and so is a tree whose
    own folder lies outside of `volume`: in a pod both would read what belongs to the pod, such as its credentials, and
    not to the dataset. Only a person's own run, by `links_may_leave`, follows every link, as trees on a laptop are
    often put together of them. What was opened decides, not its name, which may change in between.
    """

    def __init__(
        self,
        root: Path | str,
        at_work: AtWork = ignore_progress,
        *,
        links_may_leave: bool = False,
        volume: Path | None = None,
    ) -> None:
        self._root, self._at_work = Path(root), at_work
        self._border = None if links_may_leave else os.path.realpath(root)
        if self._border is not None and volume is not None and not _lies_in(self._border, os.path.realpath(volume)):
            raise BadData(f"dataset folder {root} is a link that leads out of its volume; name a folder of the volume")

    @cached_property
    def _files(self) -> tuple[SourceFile, ...]:
        if not self._root.is_dir():
            raise BadData(f"dataset folder {self._root} does not exist; mount it, or correct the path")
        files = _each_reported(_files_below(self._root, "", (), self._border), self._at_work)
        return tuple(sorted(files, key=lambda file: file.path))

    def files(self) -> Sequence[SourceFile]:
        """Returns every file, sorted by path; the etag is the modification time in nanoseconds."""
        return self._files

    def read(self, path: str) -> bytes:
        """Returns one file's bytes; raises BadData naming a file that cannot be read or was written meanwhile."""
        target = self._root / path
        try:
            with _opened(target, self._border) as descriptor, open(descriptor, "rb", closefd=False) as file:
                status = os.fstat(descriptor)
                _refuse_special(target, status)
                if status.st_size > MAX_FILE_BYTES:
                    raise BadData(f"file {target} has more than {MAX_FILE_BYTES} bytes; is it part of the dataset?")
                data = file.read(status.st_size + 1)  # which is allocated at once, whatever the file holds
        except OSError as error:
            raise BadData(f"file {target}: {error.strerror or error}; restore it") from error
        if len(data) > status.st_size:
            raise _changed(str(target))
        self._at_work()
        listed = _listed(self.__dict__.get("_files", ()), path)
        if listed is not None and (listed.size, listed.etag) != (len(data), str(status.st_mtime_ns)):
            raise _changed(str(target))
        return data

    def local_file(self, path: str) -> Path:
        """Returns the file itself; raises BadData like `read`."""
        target = self._root / path
        try:
            with _opened(target, self._border) as descriptor:
                status = os.fstat(descriptor)
        except OSError as error:
            raise BadData(f"file {target}: {error.strerror or error}; restore it") from error
        _refuse_special(target, status)
        listed = _listed(self.__dict__.get("_files", ()), path)
        if listed is not None and (listed.size, listed.etag) != (status.st_size, str(status.st_mtime_ns)):
            raise _changed(str(target))
        self._at_work()
        return target


@contextmanager
def _opened(target: Path, border: str | None, flags: int = 0) -> Iterator[int]:
    """Yields a descriptor of what a path leads to; raises BadData before anything of it is read if that is outside."""
    descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | flags)
    try:
        if border is not None and not _lies_in(str(Path(f"/proc/self/fd/{descriptor}").readlink()), border):
            raise BadData(f"{target} leads out of the dataset by a link; put the file itself into the dataset")
        yield descriptor
    finally:
        os.close(descriptor)


def _lies_in(path: str, border: str) -> bool:
    return path == border or path.startswith(border.rstrip("/") + "/")


def _refuse_special(path: Path | str, status: os.stat_result) -> None:
    """A pipe would be waited for without end, a device read without end."""
    if not stat.S_ISREG(status.st_mode):
        raise BadData(f"{path} is no regular file; remove it from the dataset")


def _each_reported(listed: Iterator[Entry], at_work: AtWork) -> Iterator[Entry]:
    for entry in listed:
        at_work()
        yield entry


def _listed(files: Sequence[SourceFile], path: str) -> SourceFile | None:
    """Returns a path's entry in a sorted listing, None where there is none, or no listing yet."""
    place = bisect_left(files, path, key=lambda file: file.path)
    return files[place] if place < len(files) and files[place].path == path else None


def _changed(where: str) -> BadData:
    return BadData(
        f"file {where} changed since the dataset was listed; let nobody write to the dataset, and build the cache again"
    )


def _files_below(folder: Path, prefix: str, above: tuple[_Identity, ...], border: str | None) -> Iterator[SourceFile]:
    """Yields the files of a folder that lies in the folders `above`; raises BadData naming what cannot be read."""
    try:
        with _opened(folder, border, os.O_DIRECTORY) as descriptor:
            own = _identity(os.fstat(descriptor))
            if own in above:
                log.warning("folder leads back to a folder it lies in; it is left out", folder=str(folder))
                return
            with os.scandir(descriptor) as entries:
                listed = [_seen(folder, entry, border) for entry in entries]
    except OSError as error:
        raise BadData(f"folder {folder}: {error.strerror or error}; make it readable, or remove it") from error
    for name, is_folder, status in listed:
        if not is_folder:
            yield SourceFile(prefix + name, status.st_size, str(status.st_mtime_ns))
        elif name != NOT_DATA:
            yield from _files_below(folder / name, f"{prefix}{name}/", (*above, own), border)


def _seen(folder: Path, entry: os.DirEntry[str], border: str | None) -> tuple[str, bool, os.stat_result]:
    """Returns an entry's name, whether it is a folder, and its status; a link's are those of what it leads to."""
    path = folder / entry.name
    try:
        is_folder, status = entry.is_dir(), entry.stat()
    except OSError as error:
        raise BadData(f"file {path}: {error.strerror or error}; restore it, or remove the link") from error
    if border is not None and entry.is_symlink() and not _lies_in(os.path.realpath(path), border):
        raise BadData(f"{path} leads out of the dataset by a link; put the file itself into the dataset")
    if not is_folder:
        _refuse_special(path, status)
    return entry.name, is_folder, status


def _identity(status: os.stat_result) -> _Identity:
    return status.st_dev, status.st_ino
