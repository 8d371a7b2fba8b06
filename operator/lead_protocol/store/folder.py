"""The object store as a directory: for laptops, tests and `lead train` without a cluster.

Object `a/b` is the file `<root>/a/b`. Writers on one machine, or on a shared file system with hard links, get the
same promises as with S3: create-only writes have one winner, readers see whole objects. No key leads out of the root.
"""

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from lead_protocol.store.key_rules import UnsafeKey, check_key, check_prefix
from lead_protocol.store.object_store import (
    ObjectCorrupt,
    ObjectInfo,
    ObjectNotFound,
    ObjectReplaced,
    StoreDenied,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from lead_protocol.store.partial_file import FULL, PartialFile, full_disk_named, partial_file

PARTS_FOLDER = ".parts"  # unfinished writes; on the same file system as the objects, never listed
CHUNK_BYTES = 4 * 1024 * 1024
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_MISSING = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR}


class FolderStore:
    """An ObjectStore whose objects are the files below one folder."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    @property
    def url(self) -> str:
        """Where the store is, for messages and URIs."""
        return f"file://{self._root}"

    def get(self, key: str, *, max_bytes: int, etag: str = "") -> bytes:
        """Returns the whole object; raises ObjectNotFound, or ObjectCorrupt when it is larger than `max_bytes`.

        With an `etag`, of that version alone; raises ObjectReplaced where another lies there, or was written meanwhile.
        """
        with self._reading(key) as file:
            data = file.read(max_bytes + 1)
            found = _info(key, os.fstat(file.fileno())).etag
        if etag and found != etag:
            raise ObjectReplaced(f"{self.url}/{key} is version {found}, another than {etag}, which was asked for")
        if len(data) > max_bytes:
            raise ObjectCorrupt(f"{self.url}/{key} is larger than the {max_bytes} bytes expected at most")
        return data

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """Returns exactly `length` bytes from `offset`; raises ObjectCorrupt when the object is shorter."""
        with self._reading(key) as file:
            file.seek(offset)
            data = file.read(length)
        if len(data) != length:
            raise ObjectCorrupt(f"{self.url}/{key} ends before byte {offset + length}; it was truncated or replaced")
        return data

    def download(self, key: str, path: Path, *, size: int, sha256: str) -> None:
        """Copies an object to `path` (`.part`, fsync, rename); raises ObjectCorrupt unless size and SHA-256 match."""
        digest, found = hashlib.sha256(), 0
        with self._reading(key) as file, self._writing(path.parent, path.name, key) as part, full_disk_named(path):
            part.reserve(size)
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
                found += len(chunk)
                part.write(chunk)
            if (found, digest.hexdigest()) != (size, sha256):
                raise ObjectCorrupt(
                    f"{self.url}/{key} has {found} bytes, SHA-256 {digest.hexdigest()}; expected {size}, {sha256}"
                )
            part.replace(path)

    def head(self, key: str) -> ObjectInfo | None:
        """Returns size and etag, or None when the key does not exist."""
        path = self._path(key)
        try:
            return _info(key, path.stat()) if path.is_file() else None
        except OSError as error:
            failure = self._explain(error, key)
            if isinstance(failure, ObjectNotFound):
                return None
            raise failure from error

    def attest(self, key: str) -> ObjectInfo | None:
        """Like `head`, with the SHA-256 of the bytes."""
        found, digest = self.head(key), hashlib.sha256()
        if found is None:
            return None
        with self._reading(key) as file:
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
        return replace(found, sha256=digest.hexdigest())

    def copy(self, source: str, target: str, *, etag: str) -> None:
        """Makes an object's file known under another name: files of a store are replaced, never written again."""
        path, other = self._path(source), self._path(target)
        found = self.head(source)
        if found is None:
            raise ObjectNotFound(f"{self.url}/{source} does not exist")
        if found.etag != etag:
            raise ObjectReplaced(f"{self.url}/{source} is version {found.etag}, another than {etag}")
        try:
            other.parent.mkdir(parents=True, exist_ok=True)
            other.unlink(missing_ok=True)
            os.link(path, other)
        except OSError as error:
            raise self._explain(error, target) from error

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Yields every object below `prefix` in key order (as S3: by UTF-8 bytes), after the key `start_after`."""
        check_prefix(prefix)
        folder = prefix.rpartition("/")[0]
        after = start_after.encode()
        for key, path in self._walk(self._root / folder, f"{folder}/" if folder else ""):
            if key.startswith(prefix) and key.encode() > after:
                try:
                    status = path.stat()
                except FileNotFoundError:
                    continue  # deleted since its folder was read
                yield _info(key, status)

    def put(self, key: str, data: bytes) -> None:
        """Writes an object, replacing what was there."""
        target = self._path(key)
        with self._writing(self._parts, target.name, key) as part:
            part.write(data)
            target.parent.mkdir(parents=True, exist_ok=True)
            part.replace(target)

    def create(self, key: str, data: bytes) -> bool:
        """Writes an object only if the key is free; True when the stored bytes are `data`."""
        target = self._path(key)
        with self._writing(self._parts, target.name, key) as part:
            part.write(data)
            target.parent.mkdir(parents=True, exist_ok=True)
            if part.link(target):
                return True
        return self._holds(key, len(data), hashlib.sha256(data).hexdigest())

    def create_file(self, key: str, path: Path, *, sha256: str) -> bool:
        """Like `create` for a file of any size; raises ObjectCorrupt when the file itself is not what was promised."""
        target, digest, size = self._path(key), hashlib.sha256(), 0
        with path.open("rb") as source, self._writing(self._parts, target.name, key) as part:
            while chunk := source.read(CHUNK_BYTES):
                digest.update(chunk)
                size += len(chunk)
                part.write(chunk)
            if digest.hexdigest() != sha256:
                raise ObjectCorrupt(f"file {path} has SHA-256 {digest.hexdigest()}, expected {sha256}; write it again")
            target.parent.mkdir(parents=True, exist_ok=True)
            if part.link(target):
                return True
        return self._holds(key, size, sha256)

    def delete(self, key: str) -> None:
        """Removes an object; a missing key is fine."""
        try:
            self._path(key).unlink(missing_ok=True)
        except NotADirectoryError:
            return  # a parent of the key is itself an object, so the key does not exist
        except OSError as error:
            raise self._explain(error, key) from error

    @property
    def _parts(self) -> Path:
        return self._root / PARTS_FOLDER

    def _path(self, key: str) -> Path:
        check_key(key)
        if key.split("/", 1)[0] == PARTS_FOLDER:
            raise UnsafeKey(f"object key {key!r} starts with {PARTS_FOLDER!r}, where unfinished writes lie; rename it")
        return self._root / key

    def _holds(self, key: str, size: int, sha256: str) -> bool:
        with self._reading(key) as file:
            if os.fstat(file.fileno()).st_size != size:
                return False
            digest = hashlib.sha256()
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
            return digest.hexdigest() == sha256

    def _walk(self, folder: Path, prefix: str) -> Iterator[tuple[str, Path]]:
        try:
            with os.scandir(folder) as found:
                # A folder sorts as its name with the slash, because that is what its objects' keys begin with.
                entries = sorted(
                    ((entry.name + "/" if entry.is_dir() else entry.name) for entry in found),
                    key=lambda name: name.encode(errors="surrogateescape"),
                )
        except (FileNotFoundError, NotADirectoryError):
            return  # no folder: no object has this prefix
        except OSError as error:
            raise self._explain(error, prefix) from error
        for name in entries:
            if not name.endswith("/"):
                yield prefix + name, folder / name
            elif prefix or name != f"{PARTS_FOLDER}/":
                yield from self._walk(folder / name, prefix + name)

    @contextmanager
    def _reading(self, key: str) -> Iterator[BinaryIO]:
        path = self._path(key)
        try:
            with path.open("rb") as file:
                yield file
        except OSError as error:
            raise self._explain(error, key) from error

    @contextmanager
    def _writing(self, folder: Path, name: str, key: str) -> Iterator[PartialFile]:
        try:
            with partial_file(folder, name) as part:
                yield part
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise StoreError(
                f"{self.url}/{key}: {error.filename} exists; a folder cannot hold both the object `a` and "
                "objects below `a/`; choose another key"
            ) from error
        except OSError as error:
            raise self._explain(error, key) from error

    def _explain(self, error: OSError, key: str) -> StoreError:
        where = f"{self.url}/{key}"
        if error.errno in FULL:
            return StoreFull(f"{where}: no room left for {error.filename or 'it'} ({error.strerror}); free space")
        if error.errno in _DENIED:
            return StoreDenied(f"{where}: {error.strerror}; let this user read and write {error.filename}")
        if error.errno in _MISSING:
            return ObjectNotFound(f"{where} does not exist")
        return StoreUnavailable(f"{where}: {error.strerror or error}; check the file system of {self._root}")


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(key, status.st_size, f"{status.st_size:x}-{status.st_mtime_ns:x}")
