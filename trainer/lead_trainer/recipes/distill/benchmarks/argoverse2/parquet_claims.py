"""How many bytes the pages of a Parquet file claim to unpack to, read without unpacking one.

Used by `bounded_table`. pyarrow makes room for a whole page as its header asks, up to 2 GiB, whatever the file's index
contains. A header is a struct of Thrift's compact protocol; three of its numbers are read, the rest is passed over.
"""

from collections.abc import Iterator

import pyarrow.parquet as pq

_UNCOMPRESSED, _COMPRESSED = 2, 3  # fields of a PageHeader
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY = range(1, 9)
_STRUCT = 12
_INTEGERS = (_I16, _I32, _I64)
_DEPTH = 8  # of structs in structs; a header has four
_MAX_VARINT_BYTES = 10


def claimed_page_bytes(data: bytes, chunk: pq.ColumnChunkMetaData) -> Iterator[int]:
    """Yields what each page of a column chunk claims to unpack to; raises ValueError where there is no page header."""
    at = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        at = min(at, chunk.dictionary_page_offset)
    end = at + chunk.total_compressed_size
    while at < end:
        header = _Thrift(data, at)
        found = header.integers()
        unpacked, packed = found.get(_UNCOMPRESSED, -1), found.get(_COMPRESSED, -1)
        if unpacked < 0 or packed < 0:
            raise ValueError("it has a page without a size")
        yield unpacked
        at = header.at + packed


class _Thrift:
    """A reader of one struct; `at` is where it ends once it is read."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self.at = at

    def integers(self, depth: int = 0) -> dict[int, int]:
        """Returns the integers of the struct by their field, without those of structs in it."""
        if depth > _DEPTH:
            raise ValueError("a page header nests too deep")
        found, field = dict[int, int](), 0
        while (head := self._byte()) != 0:
            step, kind = head >> 4, head & 15
            field = field + step if step else self._zigzag()
            if kind in _INTEGERS:
                found[field] = self._zigzag()
            else:
                self._pass(kind, depth)
        return found

    def _pass(self, kind: int, depth: int) -> None:
        if kind in (_TRUE, _FALSE):
            return  # the value is the kind
        if kind == _BYTE:
            self._skip(1)
        elif kind == _DOUBLE:
            self._skip(8)
        elif kind == _BINARY:
            self._skip(self._varint())
        elif kind == _STRUCT:
            self.integers(depth + 1)
        else:
            raise ValueError(f"a page header holds a value of kind {kind}, which none has")

    def _zigzag(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def _varint(self) -> int:
        number = 0
        for position in range(_MAX_VARINT_BYTES):
            byte = self._byte()
            number |= (byte & 127) << (7 * position)
            if byte < 128:
                return number
        raise ValueError("a page header holds a number that does not end")

    def _byte(self) -> int:
        self._skip(1)
        return self._data[self.at - 1]

    def _skip(self, count: int) -> None:
        self.at += count
        if not 0 < self.at <= len(self._data):
            raise ValueError("a page header reaches beyond the file")
