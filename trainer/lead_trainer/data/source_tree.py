"""A raw dataset tree, in a bucket or in a folder, behind one small interface; used by `build` and the preparations.

The listing is taken once, when the tree is opened: it is what the cache's digest vouches for.
"""

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from lead_protocol.store.object_store import ObjectCorrupt, ObjectNotFound, ObjectStore
from lead_trainer.errors import BadData
from lead_trainer.recipes.recipe import SourceFile

MAX_FILE_BYTES = 1024 * 1024 * 1024  # the annotations of the whole nuScenes are one JSON of some 600 MB


class StoreTree:
    """A tree below a prefix of an object store."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix.strip("/") + "/" if prefix.strip("/") else ""

    @cached_property
    def _files(self) -> tuple[SourceFile, ...]:
        cut = len(self._prefix)
        infos = self._store.list(self._prefix)
        files = [SourceFile(i.key[cut:], i.size, i.etag) for i in infos if not i.key.endswith("/")]
        return tuple(sorted(files, key=lambda file: file.path))

    def files(self) -> Sequence[SourceFile]:
        """Returns every file, sorted by path."""
        return self._files

    def read(self, path: str) -> bytes:
        """Returns one file's bytes; raises BadData naming the object when it is missing or too large."""
        try:
            return self._store.get(self._prefix + path, max_bytes=MAX_FILE_BYTES)
        except (ObjectNotFound, ObjectCorrupt) as error:
            raise BadData(f"file {self._store.url}/{self._prefix}{path}: {error}; restore it") from error


class FolderTree:
    """A tree in a mounted folder."""

    def __init__(self, root: Path | str) -> None:
        self._root = Path(root)

    @cached_property
    def _files(self) -> tuple[SourceFile, ...]:
        if not self._root.is_dir():
            raise BadData(f"dataset folder {self._root} does not exist; mount it, or correct the path")
        found: list[SourceFile] = []
        for folder, _, names in os.walk(self._root):
            for name in names:
                path = Path(folder) / name
                status = path.stat()
                relative = path.relative_to(self._root).as_posix()
                found.append(SourceFile(relative, status.st_size, str(status.st_mtime_ns)))
        return tuple(sorted(found, key=lambda file: file.path))

    def files(self) -> Sequence[SourceFile]:
        """Returns every file, sorted by path; the etag is the modification time in nanoseconds."""
        return self._files

    def read(self, path: str) -> bytes:
        """Returns one file's bytes; raises BadData naming the file when it cannot be read."""
        target = self._root / path
        try:
            return target.read_bytes()
        except OSError as error:
            raise BadData(f"file {target}: {error.strerror or error}; restore it") from error
