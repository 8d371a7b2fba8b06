"""Batches in memory that is made once and used again: the rows of a slot are filled by threads, in place.

Fresh memory for every batch costs more than decoding it (first touch of each page), so a slot is written again as soon
as nobody holds the batch it last was. A batch that somebody keeps is never overwritten: its slot leaves the ring.

A recipe's `collate` stacks samples. Keys that it only stacks are copied straight into a slot's rows; which keys these
are is found by comparing its answer for the first batch, byte for byte. Texts, keys of changing shape or type, and keys
that `collate` makes into something else go through `collate` every time.
"""

import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from lead_trainer.contract.samples import Batch, Sample
from lead_trainer.data.jpeg_picture import EncodedPixels, decoded

Array = npt.NDArray[Any]
Collate = Callable[[Sequence[Sample]], Batch]
_HELD_BY_US = 3  # a slot's dict, the loop variable, and getrefcount's own argument


@dataclass(frozen=True)
class RowKeys:
    """Keys that are stacked in slots; None allows every key, before the first batch has been compared."""

    keys: frozenset[str] | None = None
    whole: bool = False  # `collate` must see whole samples: it makes keys that no sample has, or leaves some out

    def allows(self, key: str) -> bool:
        """Returns whether a slot may hold rows of `key`."""
        return not self.whole and (self.keys is None or key in self.keys)


class Slot:
    """Memory for the rows of one batch."""

    def __init__(self, rows: int, *, pinned: bool) -> None:
        self._rows = rows
        self._pinned = pinned
        self._arrays: dict[str, Array] = {}
        self._lock = threading.Lock()  # of making arrays; rows are written without
        self._samples: list[_Row] = []
        self.copied: torch.cuda.Event | None  # when the device has read the memory
        self.clear()

    def clear(self) -> None:
        """Forgets the last batch, keeps the memory."""
        self.copied = None
        self._samples = [_Row() for _ in range(self._rows)]

    def is_free(self) -> bool:
        """Returns whether no batch handed out by this slot is alive; torch's views count as references to our array."""
        if self.copied is not None and not self.copied.query():  # type: ignore[no-untyped-call]
            return False
        return all(sys.getrefcount(array) <= _HELD_BY_US for array in self._arrays.values())

    def put(self, row: int, sample: Sample, keys: RowKeys) -> None:
        """Copies a sample into its row, where pictures are decoded; what does not fit the slot is kept beside it."""
        place = self._samples[row] = _Row(tuple(sample))
        for key, value in sample.items():
            array = self._array(key, value) if keys.allows(key) else None
            if array is None or not _fits(value, array):
                place.rest[key] = decoded(value)
                continue
            if isinstance(value, EncodedPixels):
                value.write_into(array[row])
            else:
                array[row] = value
            place.stacked.append(key)

    def batch(self, collate: Collate, keys: RowKeys) -> Batch:
        """Returns the batch of the filled rows; its tensors are views of the slot."""
        if keys.whole:
            return collate(self.samples())
        stacked = set.intersection(*(set(filter(keys.allows, row.stacked)) for row in self._samples))
        names = dict.fromkeys(key for row in self._samples for key in row.keys)
        rest = [key for key in names if key not in stacked]
        others = self._collated(collate, rest) if rest else {}
        return {key: torch.from_numpy(self._arrays[key]) if key in stacked else others[key] for key in names}

    def samples(self, only: Sequence[str] | None = None) -> list[Sample]:
        """Returns the samples put in, or some keys of them."""
        return [
            {
                key: row.rest[key] if key in row.rest else self._arrays[key][number]
                for key in row.keys
                if only is None or key in only
            }
            for number, row in enumerate(self._samples)
        ]

    def _collated(self, collate: Collate, keys: Sequence[str]) -> Batch:
        try:
            batch = collate(self.samples(keys))
        except (LookupError, TypeError, AttributeError):  # it reads other keys; the real error is raised again later
            return collate(self.samples())
        return batch if all(key in batch for key in keys) else collate(self.samples())

    def _array(self, key: str, value: Any) -> Array | None:
        array = self._arrays.get(key)
        if array is None and (kind := _row_type(value)) is not None:
            with self._lock:
                array = self._arrays.get(key)
                if array is None:
                    shape = (self._rows, *(value.shape if isinstance(value, EncodedPixels) else np.shape(value)))
                    array = self._arrays[key] = _memory(shape, kind, pinned=self._pinned)
        return array


@dataclass
class _Row:
    keys: tuple[str, ...] = ()
    stacked: list[str] = field(default_factory=list)
    rest: Sample = field(default_factory=dict)


class SlotRing:
    """Slots in use and free ones; one consumer takes, many threads fill."""

    def __init__(self, rows: int, slots: int, *, pinned: bool) -> None:
        self._rows, self._most, self._pinned = rows, slots, pinned
        self._returned: deque[Slot] = deque()
        self.made = 0  # slots there ever were: more than `slots` when batches are kept by their consumer

    def take(self) -> Slot:
        """Returns a slot that nobody reads, a new one where there is none."""
        for _ in range(len(self._returned)):
            slot = self._returned.popleft()
            if slot.is_free():
                slot.clear()
                return slot
            self._returned.append(slot)
        self.made += 1
        return Slot(self._rows, pinned=self._pinned)

    def give_back(self, slot: Slot) -> None:
        """Returns a slot whose batch was handed out; the oldest leaves the ring when there are too many."""
        self._returned.append(slot)
        while len(self._returned) > self._most:
            self._returned.popleft()


def compared_keys(collate: Collate, samples: Sequence[Sample], batch: Mapping[str, Any]) -> RowKeys:
    """Returns which keys of a batch stacked in a slot equal what `collate` makes of the same samples."""
    expected = collate(samples)
    if expected.keys() != batch.keys():
        return RowKeys(whole=True)
    return RowKeys(frozenset(key for key, value in batch.items() if _same_bytes(value, expected[key])))


def _same_bytes(first: Any, second: Any) -> bool:
    if not isinstance(first, torch.Tensor) or not isinstance(second, torch.Tensor):
        return False
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    return first.numpy().tobytes() == second.numpy().tobytes()


def _memory(shape: tuple[int, ...], kind: torch.dtype, *, pinned: bool) -> Array:
    """Returns memory for rows; numpy, unlike torch, asks for huge pages, which are written in a third less time."""
    if pinned:
        return torch.empty(shape, dtype=kind, pin_memory=True).numpy()
    return np.empty(shape, torch.empty(0, dtype=kind).numpy().dtype)


def _row_type(value: Any) -> torch.dtype | None:
    """Returns the dtype of a row, None for what memory cannot be made for ahead."""
    if not isinstance(value, (EncodedPixels, np.ndarray, np.generic, bool, int, float)):
        return None
    kind = value.dtype if isinstance(value, EncodedPixels) else np.asarray(value).dtype
    try:
        return torch.from_numpy(np.empty(0, kind)).dtype
    except TypeError:
        return None


def _fits(value: Any, array: Array) -> bool:
    if isinstance(value, (EncodedPixels, np.ndarray, np.generic)):
        return value.dtype == array.dtype and value.shape == array.shape[1:]
    return isinstance(value, (bool, int, float)) and np.asarray(value).dtype == array.dtype and array.ndim == 1
