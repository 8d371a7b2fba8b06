"""A raw dataset tree, in a bucket or in a folder, behind one small interface; used by `build` and the preparations.

The listing is taken once, when the tree is opened: it is what the cache's digest vouches for. A file that is no longer
what was listed when it is read ends the build, or a cache would hold other bytes than its name says. Each file that was
listed or read is a sign that the work goes on, told to `at_work`: a large tree takes hours before there is other news.
"""

import logging
import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from lead_protocol.store.object_store import ObjectCorrupt, ObjectNotFound, ObjectReplaced, ObjectStore
from lead_trainer.errors import BadData
from lead_trainer.recipes.recipe import SourceFile

LOG = logging.getLogger(__name__)
NOT_DATA = "lost+found"  # at the root of an ext4 volume, where only root may look into it
MAX_FILE_BYTES = 1024 * 1024 * 1024  # the annotations of the whole nuScenes are one JSON of some 600 MB
_Identity = tuple[int, int]  # device and inode
AtWork = Callable[[], None]
Entry = TypeVar("Entry")


def tell_nobody() -> None:
    """For a tree whose reader is not waited for."""


class StoreTree:
    """A tree below a prefix of an object store."""

    def __init__(self, store: ObjectStore, prefix: str, at_work: AtWork = tell_nobody) -> None:
        self._store, self._at_work = store, at_work
        self._prefix = prefix.strip("/") + "/" if prefix.strip("/") else ""

    @cached_property
    def _files(self) -> tuple[SourceFile, ...]:
        cut = len(self._prefix)
        infos = _each_told(self._store.list(self._prefix), self._at_work)
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


class FolderTree:
    """A tree in a mounted folder; links to files and folders are followed, as trees are often put together of them."""

    def __init__(self, root: Path | str, at_work: AtWork = tell_nobody) -> None:
        self._root, self._at_work = Path(root), at_work

    @cached_property
    def _files(self) -> tuple[SourceFile, ...]:
        if not self._root.is_dir():
            raise BadData(f"dataset folder {self._root} does not exist; mount it, or correct the path")
        files = _each_told(_files_below(self._root, "", ()), self._at_work)
        return tuple(sorted(files, key=lambda file: file.path))

    def files(self) -> Sequence[SourceFile]:
        """Returns every file, sorted by path; the etag is the modification time in nanoseconds."""
        return self._files

    def read(self, path: str) -> bytes:
        """Returns one file's bytes; raises BadData naming a file that cannot be read or was written meanwhile."""
        target = self._root / path
        try:
            with target.open("rb") as file:
                data, status = file.read(), os.fstat(file.fileno())
        except OSError as error:
            raise BadData(f"file {target}: {error.strerror or error}; restore it") from error
        self._at_work()
        listed = _listed(self.__dict__.get("_files", ()), path)
        if listed is not None and (listed.size, listed.etag) != (len(data), str(status.st_mtime_ns)):
            raise _changed(str(target))
        return data


def _each_told(listed: Iterator[Entry], at_work: AtWork) -> Iterator[Entry]:
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


def _files_below(folder: Path, prefix: str, above: tuple[_Identity, ...]) -> Iterator[SourceFile]:
    """Yields the files of a folder that lies in the folders `above`; raises BadData naming what cannot be read."""
    try:
        own = _identity(folder.stat())
        if own in above:
            LOG.warning("folder %s leads back to a folder it lies in; it is left out", folder)
            return
        with os.scandir(folder) as entries:
            listed = list(entries)
    except OSError as error:
        raise BadData(f"folder {folder}: {error.strerror or error}; make it readable, or remove it") from error
    for entry in listed:
        try:
            is_folder, status = entry.is_dir(), entry.stat()
        except OSError as error:
            raise BadData(f"file {entry.path}: {error.strerror or error}; restore it, or remove the link") from error
        if not is_folder:
            yield SourceFile(prefix + entry.name, status.st_size, str(status.st_mtime_ns))
        elif entry.name != NOT_DATA:
            yield from _files_below(Path(entry.path), f"{prefix}{entry.name}/", (*above, own))


def _identity(status: os.stat_result) -> _Identity:
    return status.st_dev, status.st_ino
