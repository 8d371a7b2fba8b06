"""Counts over the records of a part, and of all parts: what a manifest states of a cache as a whole.

Integers alone, so the sums are the same however the parts were shared among pods. Used by `build`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from lead_trainer.contract.checked_parts import BadPart
from lead_trainer.data.record import decode_record

Counts = Mapping[str, npt.NDArray[np.int64]]


class PartCounts:
    """Adds up what `of_sample` counts in each record that passes; None decodes no record and counts nothing."""

    def __init__(self, of_sample: Callable[[int, Mapping[str, memoryview]], Counts] | None) -> None:
        self._of_sample = of_sample
        self._sums: dict[str, npt.NDArray[np.int64]] = {}

    def passing(self, records: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        """Passes records (number, bytes) on."""
        if self._of_sample is None:
            yield from records
            return
        for number, data in records:
            self._sums = summed([self._sums, self._of_sample(number, decode_record(data).fields)])
            yield number, data

    def as_lists(self) -> dict[str, list[int]]:
        """Returns the sums as a part's record keeps them."""
        return {name: values.tolist() for name, values in self._sums.items()}


def summed(each: Iterable[Mapping[str, Any]]) -> dict[str, npt.NDArray[np.int64]]:
    """Returns the sums of counts by name; who lacks a name counted nothing."""
    sums: dict[str, npt.NDArray[np.int64]] = {}
    for counts in each:
        for name, values in counts.items():
            if name in sums and len(sums[name]) != len(values):
                raise BadPart(
                    f"preparation.counts: {name!r} has {len(values)} numbers in one record and {len(sums[name])} in "
                    "another; give each as many"
                )
            sums[name] = sums[name] + values if name in sums else np.array(values, np.int64)
    return sums
