"""Arrays of `.npz` and `.npy` files, read without pickle by one thread of a process at a time.

Used by the recipes' ingests. numpy parses an array's header with `ast`. Before CPython 3.11.8 that is not safe between
threads (python/cpython#106905): now and then a valid file raises SystemError, and its build would have failed for good.
"""

import io
import threading
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy_format
from numpy.lib.npyio import NpzFile

MAX_BYTES = 1 << 30  # of all arrays of a file: compressed, they may be a thousandth of that
MAX_HEADER_BYTES = 10_000  # of an `.npy` file: kind, order and shape take some hundred
_BROKEN = (
    OSError, EOFError, KeyError, NotImplementedError, RuntimeError, OverflowError, SyntaxError, TypeError, MemoryError,
    tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
# By version; the third is for names of fields that are not ASCII.
_HEADERS = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
_PARSING = threading.Lock()


@contextmanager
def npz_arrays(data: bytes, max_bytes: int = MAX_BYTES) -> Iterator[NpzFile]:
    """Yields the file's arrays by name; raises ValueError where it is no such file, or one of too many bytes."""
    with _PARSING:
        if not data.startswith(b"PK"):  # numpy would read a single array, too
            raise ValueError("it is no zip file")
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as stored:
                members: zipfile.ZipFile = stored.zip
                if sum(member.file_size for member in members.infolist()) > max_bytes:
                    raise ValueError(f"its arrays have more than {max_bytes} bytes")
                yield stored
        except _BROKEN as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error


def npy_array(data: bytes) -> npt.NDArray[Any]:
    """Returns the array of an `.npy` file; raises ValueError where it is none, or holds objects."""
    with _PARSING:
        if not data.startswith(b"\x93NUMPY"):
            raise ValueError("it is no .npy file")
        length = int.from_bytes(data[8:10] if data[6:7] == b"\x01" else data[8:12], "little")
        if length > MAX_HEADER_BYTES:
            raise ValueError(f"its header has {length} bytes, expected at most {MAX_HEADER_BYTES}")
        try:
            if _header_dtype(data).hasobject:
                raise ValueError("it holds Python objects, expected numbers")
            array: npt.NDArray[Any] = np.load(io.BytesIO(data), allow_pickle=False)
        except _BROKEN as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error
        return array


def _header_dtype(data: bytes) -> np.dtype[Any]:
    stream = io.BytesIO(data)
    version = npy_format.read_magic(stream)
    if version not in _HEADERS:
        raise ValueError(f"it is of version {version}, expected one of {', '.join(map(str, _HEADERS))}")
    return _HEADERS[version](stream, max_header_size=MAX_HEADER_BYTES)[2]
