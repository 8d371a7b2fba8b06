"""Values of a database's cells: SQLite puts any type into any column, so each one is checked before it is used."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lead_trainer.errors import BadData
from lead_trainer.recipes.lead.ingest.plain_pickle import plain_value

TOKEN_BYTES = 8
LARGEST = 1e15  # of any number of a log that is no time
LATEST_US = 10**17  # of any time: the year 5138
MAX_VECTOR_BYTES = 4096  # of a pickled list of nine numbers

Doubles = npt.NDArray[np.float64]


def token_of(value: Any, where: str) -> str:
    """Returns a token as hex digits; raises BadData where it is NULL, or no BLOB of 8 bytes."""
    if not isinstance(value, bytes) or len(value) != TOKEN_BYTES:
        found = "NULL" if value is None else f"{type(value).__name__} {str(value)[:40]!r}"
        raise BadData(f"{where}: found {found}, expected a token, a BLOB of {TOKEN_BYTES} bytes; fetch the file again")
    return value.hex()


def text_of(value: Any, where: str) -> str:
    """Returns a text of 1 … 512 characters; raises BadData for others."""
    if not isinstance(value, str) or not 1 <= len(value) <= 512:
        raise BadData(f"{where}: found {_shown(value)}, expected a text; fetch the file again")
    return value


def integer_of(value: Any, where: str) -> int:
    """Returns an integer; raises BadData for others."""
    if not isinstance(value, int):
        raise BadData(f"{where}: found {_shown(value)}, expected an integer; fetch the file again")
    return value


def time_of(value: Any, where: str) -> int:
    """Returns microseconds since 1970; raises BadData for what is no such time."""
    found = integer_of(value, where)
    if not 0 < found < LATEST_US:
        raise BadData(f"{where}: found {found}, expected microseconds since 1970; fetch the file again")
    return found


def numbers_of(values: Sequence[Any], where: str) -> tuple[float, ...]:
    """Returns finite numbers; raises BadData for NULL (SQLite's NaN), infinities and other types."""
    for value in values:
        if not isinstance(value, int | float) or not math.isfinite(value) or abs(value) > LARGEST:
            raise BadData(f"{where}: found {_shown(value)}, expected a finite number; fetch the file again")
    return tuple(float(value) for value in values)


def vector_of(value: Any, shape: tuple[int, ...], where: str) -> Doubles:
    """Returns the numbers of a pickled list (or list of lists); raises BadData for a blob that holds anything else.

    The pickle is read by an interpreter that knows no class and no function.
    """
    if not isinstance(value, bytes):
        raise BadData(f"{where}: found {_shown(value)}, expected a pickled list; fetch the file again")
    if len(value) > MAX_VECTOR_BYTES:
        raise BadData(f"{where}: found {len(value)} bytes, expected a pickled list of {shape} numbers; fetch it again")
    try:
        plain = plain_value(value, {})
    except (ValueError, MemoryError) as error:
        raise BadData(f"{where}: is no pickled list of numbers: {error}; fetch the file again") from error
    rows = plain if len(shape) == 2 else [plain]
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise BadData(f"{where}: found a {type(plain).__name__}, expected a list; fetch the file again")
    found = (len(rows), *{len(row) for row in rows})[0 if len(shape) == 2 else 1 :]
    if found != shape:
        raise BadData(f"{where}: found {list(found)} numbers, expected {list(shape)}; fetch the file again")
    return np.array([numbers_of(row, where) for row in rows], np.float64).reshape(shape)


def rotation_of(values: Sequence[float], where: str) -> Doubles:
    """Returns a quaternion (w, x, y, z) as it is; raises BadData unless its norm is 1 within 1 %."""
    quaternion = np.array(values, np.float64)
    norm = float(np.linalg.norm(quaternion))
    if abs(norm - 1.0) > 0.01:
        raise BadData(f"{where}: found a quaternion of norm {norm:.4g}, expected 1; fetch the file again")
    return quaternion


def _shown(value: Any) -> str:
    if value is None:
        return "NULL"
    return f"{type(value).__name__} {str(value)[:40]!r}"
