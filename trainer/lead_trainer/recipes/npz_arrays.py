"""Arrays of `.npz` files, read without pickle by one thread of a process at a time; used by the recipes' ingests.

numpy parses an array's header with `ast`. Before CPython 3.11.8 that is not safe between threads
(python/cpython#106905): now and then a sound file raises SystemError, and its build would have failed for good.
"""

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.lib.npyio import NpzFile

_PARSING = threading.Lock()


@contextmanager
def npz_arrays(data: bytes) -> Iterator[NpzFile]:
    """Yields the file's arrays by name; raises ValueError, OSError, EOFError or BadZipFile where it is no such file."""
    with _PARSING, np.load(io.BytesIO(data), allow_pickle=False) as stored:
        yield stored
