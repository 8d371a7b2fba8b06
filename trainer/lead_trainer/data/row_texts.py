"""A text a row where few differ, such as the route of each of a million frames: each text once, and its number a row.

Made by `cache_tables`; a process holds 1 to 4 bytes a row instead of a copy of the text.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lead_trainer.data.small_ints import SmallInts, small


@dataclass(frozen=True)
class RowTexts:
    """A read-only column of texts; `codes` (rows,) are positions in `names`, of which some may have no row."""

    names: tuple[str, ...]
    codes: SmallInts

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> "RowTexts":
        """Takes a column of texts, plain or as a dictionary; raises ValueError where a row has no text."""
        texts = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        if not pa.types.is_string(texts.type.value_type):
            raise ValueError(f"found a column of {texts.type.value_type}, expected texts")
        chunks = texts.unify_dictionaries().chunks
        codes = [chunk.indices.to_numpy().astype(np.int32, copy=False) for chunk in chunks]
        names = tuple(chunks[0].dictionary.to_pylist()) if chunks else ()
        joined = codes[0] if len(codes) == 1 else np.concatenate([np.zeros(0, np.int32), *codes])
        if len(joined) and not 0 <= joined.min() <= joined.max() < len(names):
            raise ValueError(f"rows name the texts {joined.min()} to {joined.max()} of {len(names)}")
        return cls(names, small(joined))

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.codes)

    def __iter__(self) -> Iterator[str]:
        """Yields the text of each row."""
        return (self.names[code] for code in self.codes)

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: npt.NDArray[np.bool_]) -> "RowTexts": ...
    def __getitem__(self, row: int | npt.NDArray[np.bool_]) -> "str | RowTexts":
        """Returns the text of one row, or the column of the rows that a mask chooses."""
        if isinstance(row, np.ndarray):
            return RowTexts(self.names, self.codes[row])
        return self.names[int(self.codes[row])]

    def used(self) -> tuple[str, ...]:
        """Returns the texts that have a row, in the order of `names`."""
        return tuple(self.names[code] for code in np.unique(self.codes))

    def isin(self, texts: frozenset[str]) -> npt.NDArray[np.bool_]:
        """Returns a mask of the rows whose text is one of these."""
        return np.array([name in texts for name in self.names], np.bool_)[self.codes]
