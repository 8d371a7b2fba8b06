"""LEAD's xz pickles, read without running any of their code: numpy arrays, numpy scalars and plain containers only.

Used by the build pod for `metas/*.pkl` and `bboxes/*.pkl`. A stream that names any other class, or grows beyond the
size limit, is refused. Nothing here writes a pickle.
"""

import io
import lzma
import pickle  # only for the Unpickler below, which resolves nothing but ALLOWED
from typing import Any

import numpy as np

from lead_trainer.errors import BadData

MAX_PLAIN_BYTES = 64 * 1024 * 1024

_NUMPY_CORE = ("numpy.core", "numpy._core")  # numpy 1 and numpy 2 name their internals differently
_RECONSTRUCT = np.array(0).__reduce__()[0]
_SCALAR = np.float64(0).__reduce__()[0]


def _from_buffer(buffer: Any, dtype: Any, shape: tuple[int, ...], order: str) -> np.ndarray:
    """Rebuilds an array that protocol 5 stored as one buffer."""
    return np.frombuffer(buffer, dtype=dtype).reshape(shape, order=order)  # type: ignore[call-overload,no-any-return]


ALLOWED: dict[tuple[str, str], Any] = {
    **{(f"{core}.multiarray", "_reconstruct"): _RECONSTRUCT for core in _NUMPY_CORE},
    **{(f"{core}.multiarray", "scalar"): _SCALAR for core in _NUMPY_CORE},
    **{(f"{core}.numeric", "_frombuffer"): _from_buffer for core in _NUMPY_CORE},
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "complex"): complex,
    ("builtins", "slice"): slice,
    ("collections", "OrderedDict"): dict,
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Returns an allowed constructor; raises UnpicklingError for every other name."""
        try:
            return ALLOWED[(module, name)]
        except KeyError:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is no plain data") from None


def read_plain(data: bytes, path: str) -> Any:
    """Returns the object in an xz pickle; raises BadData naming `path` when it is truncated, too large or not plain."""
    try:
        return _PlainUnpickler(io.BytesIO(decompress(data))).load()
    except Exception as error:  # an unpickler may raise anything on hostile bytes
        raise BadData(f"file {path} is not a sound xz pickle of plain data: {error}") from error


def decompress(data: bytes) -> bytes:
    """Returns the decompressed stream; raises ValueError beyond MAX_PLAIN_BYTES and EOFError when it is truncated."""
    decoder = lzma.LZMADecompressor()
    plain = decoder.decompress(data, MAX_PLAIN_BYTES + 1)
    if len(plain) > MAX_PLAIN_BYTES:
        raise ValueError(f"it holds more than {MAX_PLAIN_BYTES} bytes")
    if not decoder.eof:
        raise EOFError(f"it ends early, after {len(data)} bytes")
    return plain
