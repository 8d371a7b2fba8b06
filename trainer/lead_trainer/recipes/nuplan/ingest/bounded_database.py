"""SQLite files of strangers: opened read-only, and never more than a bounded amount of work or memory.

A log (`*.db`) and a map (`map.gpkg`) are SQLite databases. Only stored columns of plain tables are read, no views and
no generated columns, so no SQL of the file is run. An answer holds no more than the file does, whatever its pages
claim.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lead_trainer.errors import BadData

MAX_VALUE_BYTES = 16 * 1024 * 1024  # of one text or blob: the outline of an area of a map has some kilobytes
MAX_ROWS = 20_000_000  # of one answer
BYTES_A_ROW = 8  # no row of the tables that are read takes less
MAX_STEPS = 4_000_000_000  # of SQLite's machine for one statement, a minute or so
_STEPS_A_CALL = 1_000_000
_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100

Row = tuple[Any, ...]


class Database:
    """An open database; messages name it by its path in the tree."""

    def __init__(self, connection: sqlite3.Connection, name: str, size: int) -> None:
        self._connection, self.name, self._size, self._steps = connection, name, size, 0
        self._columns: dict[str, tuple[str, ...]] = {}
        connection.set_progress_handler(self._tick, _STEPS_A_CALL)

    def rows(self, table: str, columns: Sequence[str], where: str = "", values: Sequence[Any] = ()) -> list[Row]:
        """Returns the named columns of a table's rows; raises BadData naming file, table and what is wrong.

        `where` is what follows the table's name in the statement, with `?` for each of `values`.
        """
        self._check(table, columns)
        listed = ", ".join(f'"{column}"' for column in columns)
        statement = f'SELECT {listed} FROM "{table}" {where}'
        return self._run(table, statement, values)

    def count(self, table: str) -> int:
        """Returns how many rows a table has."""
        self._check(table, ())
        return int(self._run(table, f'SELECT count(*) FROM "{table}"', ())[0][0])

    def has(self, table: str) -> bool:
        """Returns whether there is a table of this name."""
        found = self._run(table, "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,))
        return bool(found)

    def _check(self, table: str, columns: Sequence[str]) -> None:
        if table not in self._columns:
            statement = "SELECT type, sql FROM sqlite_master WHERE name = ? AND type IN ('table', 'view')"
            kinds = self._run(table, statement, (table,))
            if not kinds:
                raise BadData(f"{self.name}: table {table} is missing; fetch the file again")
            if kinds[0][0] != "table" or not str(kinds[0][1]).lstrip().upper().startswith("CREATE TABLE"):
                raise BadData(
                    f"{self.name}: {table} is a view or virtual table, expected a plain table; fetch it again"
                )
            listed = self._run(table, f'PRAGMA table_info("{table}")', ())  # without generated columns
            self._columns[table] = tuple(str(row[1]) for row in listed)
        missing = [column for column in columns if column not in self._columns[table]]
        if missing:
            raise BadData(f"{self.name}: table {table} has no column {missing[0]}; fetch the file again")

    def _run(self, table: str, statement: str, values: Sequence[Any]) -> list[Row]:
        self._steps, held = 0, 0
        found: list[Row] = []
        most = min(MAX_ROWS, self._size // BYTES_A_ROW)
        try:
            with closing(self._connection.execute(statement, tuple(values))) as cursor:
                for row in cursor:
                    found.append(row)
                    held += sum(len(value) for value in row if type(value) in (bytes, str))
                    if held > self._size or len(found) > most:
                        raise BadData(
                            f"{self.name}: table {table} gives more than the file's {self._size} bytes can hold; fetch "
                            "the file again"
                        )
                return found
        except (sqlite3.Error, UnicodeDecodeError, MemoryError, OverflowError) as error:
            why = str(error)
            if self._steps >= MAX_STEPS:
                why = f"it took more than {MAX_STEPS} steps"
            raise BadData(f"{self.name}: table {table} cannot be read: {why}; fetch the file again") from error

    def _tick(self) -> int:
        self._steps += _STEPS_A_CALL
        return int(self._steps >= MAX_STEPS)


@contextmanager
def open_database(file: Path, name: str) -> Iterator[Database]:
    """Yields the database in a file; raises BadData by `name` where it is none, or not whole.

    The file is taken as one that nobody writes to: SQLite makes no lock and no file beside it.
    """
    _check_header(file, name)
    try:
        connection = sqlite3.connect(f"file:{quote(str(file.absolute()))}?mode=ro&immutable=1", uri=True)
    except sqlite3.Error as error:
        raise BadData(f"{name}: cannot be opened: {error}; fetch the file again") from error
    with closing(connection):
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA query_only = ON")
        yield Database(connection, name, file.stat().st_size)


def _check_header(file: Path, name: str) -> None:
    """Raises BadData for what is no SQLite database, is cut off, or has changes in a file beside it."""
    with file.open("rb") as opened:
        head = opened.read(_HEADER_BYTES)
    size = file.stat().st_size
    if head[: len(_MAGIC)] != _MAGIC or len(head) < _HEADER_BYTES:
        raise BadData(f"{name}: is no SQLite database: it begins with {head[:16]!r}; fetch the file again")
    page = int.from_bytes(head[16:18], "big")
    page = 65536 if page == 1 else page
    wanted = page * int.from_bytes(head[28:32], "big")
    if head[24:28] == head[92:96] and wanted > size:  # the count of pages is valid where both counters agree
        raise BadData(f"{name}: found {size} bytes, expected {wanted} by its header: it is cut off; fetch it again")
