"""A table that the processes of a node share by mapping one file, instead of each holding its own copy.

    <folder>/<name>-<xxh3 of the file>.arrow    Arrow IPC, uncompressed: columns are read where they lie

Made once a node under a lock, published by rename, checked against its name by whoever opens it, made again when it is
damaged. A disk that cannot hold it costs memory, never the run. Used by `cache_reader` for the metas.
"""

import fcntl
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import structlog
import xxhash

from lead_protocol.store.partial_file import partial_file
from lead_trainer.data.local_disk import refuse_shared_volume

log = structlog.get_logger(__name__)
SUFFIX = ".arrow"


def shared_table(folder: Path | None, name: str, make: Callable[[], pa.Table]) -> pa.Table:
    """Returns the table `make` gives, from the node's copy where there is one; `name` must identify its content."""
    if folder is None:
        return make()
    made: pa.Table | None = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        refuse_shared_volume(folder)
        with locked(folder / f"{name}.lock"):
            found = _opened(folder, name)
            if found is None:
                made = make()
                _write(folder, name, made)
                found = _opened(folder, name)
        if found is not None:
            return found
    except OSError as error:
        log.warning(
            "table cannot be kept on disk; it is read into memory", table=name, folder=str(folder), error=str(error)
        )
    return make() if made is None else made


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Holds the file's lock, which the kernel frees when its holder dies; yields its descriptor."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _opened(folder: Path, name: str) -> pa.Table | None:
    for path in sorted(folder.glob(f"{name}-*{SUFFIX}")):
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size:
                view = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
                if xxhash.xxh3_64_hexdigest(view) == path.stem.rpartition("-")[2]:
                    return pa.ipc.open_file(pa.py_buffer(view)).read_all()
        log.warning("shared table is damaged; making it again", path=str(path))
        path.unlink(missing_ok=True)
    return None


def _write(folder: Path, name: str, table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    data = sink.getvalue()
    with partial_file(folder, name) as part:
        part.write(data)
        part.replace(folder / f"{name}-{xxhash.xxh3_64_hexdigest(data)}{SUFFIX}")
