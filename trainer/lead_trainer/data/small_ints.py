"""Columns of whole numbers in as few bytes as their values need: a process of a node holds those of every sample."""

from typing import Any

import numpy as np
import numpy.typing as npt

SmallInts = npt.NDArray[np.signedinteger[Any]]


def int_type(least: int, most: int) -> np.dtype[np.signedinteger[Any]]:
    """Returns the smallest signed type that holds both; signed, as differences of unsigned values wrap around."""
    limits = ((kind, np.iinfo(kind)) for kind in (np.int8, np.int16, np.int32))
    return np.dtype(next((kind for kind, of in limits if of.min <= least <= most <= of.max), np.int64))


def small(values: npt.NDArray[np.signedinteger[Any]]) -> SmallInts:
    """Returns a copy of the values, (n,), in the smallest type that holds them all.

    Arithmetic with Python's integers may overflow such a type: widen what is to be calculated with.
    """
    return values.astype(int_type(int(values.min(initial=0)), int(values.max(initial=0))))
