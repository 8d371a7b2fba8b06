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
from numpy.lib.npyio import NpzFile

MAX_BYTES = 1 << 30  # of all arrays of a file: compressed, they may be a thousandth of that
_BROKEN = (
    OSError, EOFError, KeyError, NotImplementedError, RuntimeError, OverflowError, SyntaxError, TypeError, MemoryError,
    tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
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
        try:
            array: npt.NDArray[Any] = np.load(io.BytesIO(data), allow_pickle=False)
        except _BROKEN as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error
        return array
