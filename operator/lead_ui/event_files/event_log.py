"""Reads event files as they grow: frames of TFRecord around messages `Event` of TensorBoard's protocol buffers.

Pods write these files, so nothing in them is trusted: lengths are checked before anything is read, and the number of
tags, points and pictures is limited. Checksums are not compared: what a damaged disk changed is one wrong point.

Fields read: Event {1: wall_time, 2: step, 5: summary, 7: session_log}; Summary {1: value}; Value {1: tag,
2: simple_value, 4: image}; Image {4: encoded_image_string}; SessionLog {1: status}, of which START means that the
writer's step and what follows it replace what earlier files hold.
"""

import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

MAX_EVENT_BYTES = 64 * 1024 * 1024  # one clip
MAX_TAGS = 2000
MAX_TAG_CHARS = 256
MAX_POINTS = 8_000_000  # of one file, which trainers end at 64 MiB: a point takes 60 bytes there
MAX_PICTURES = 20_000
_HEAD, _TAIL = 12, 4  # of a frame: length and its checksum, checksum of the data
_START = 1  # SessionLog.SessionStatus
_WALL, _STEP = 0x09, 0x10  # tags of the first two fields of an Event
_VALUE = 0x15  # tag of Value.simple_value: four bytes follow

_length_at = struct.Struct("<Q").unpack_from
_double_at = struct.Struct("<d").unpack_from
_float_at = struct.Struct("<f").unpack_from


class EventLogCorrupt(ValueError):
    """The bytes are no event file from here on."""


@dataclass
class Series:
    """The points of one tag in the order in which they were written."""

    steps: "array[int]" = field(default_factory=lambda: array("q"))
    walls: "array[float]" = field(default_factory=lambda: array("d"))  # seconds since 1970
    values: "array[float]" = field(default_factory=lambda: array("f"))


@dataclass(frozen=True)
class PictureAt:
    """Where an encoded picture or clip lies in its file."""

    tag: str
    step: int
    wall: float
    offset: int
    length: int


@dataclass
class _Pending:
    """Points that were read and are not in the arrays yet: joining bytes once is faster than unpacking each."""

    steps: list[int] = field(default_factory=list)
    walls: list[bytes] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)


class EventLog:
    """What one event file holds so far; `feed` it the bytes that are new."""

    def __init__(self) -> None:
        self.series: dict[str, Series] = {}
        self.pictures: list[PictureAt] = []
        self.replaces_from: int | None = None  # earlier files' points from this step on do not count
        self.first_wall: float | None = None
        self.last_wall: float | None = None
        self.size = 0  # bytes that were fed
        self.fault = ""  # why the rest of the file is not read
        self._rest = b""
        self._points = 0
        self._known: dict[bytes, _Pending] = {}  # by the bytes between step and value, which name the tag
        self._pending: dict[str, _Pending] = {}

    def feed(self, data: bytes) -> None:
        """Reads what is complete; an incomplete frame at the end waits for the next call."""
        self.size += len(data)
        if self.fault:
            return
        buffer = self._rest + data if self._rest else data
        base = self.size - len(buffer)
        try:
            used = self._read(buffer, base)
            self._rest = buffer[used:]
        except (EventLogCorrupt, IndexError, struct.error) as error:
            self.fault, self._rest = str(error) or "a message ends before its last field", b""
        self._flush()

    def _read(self, buffer: bytes, base: int) -> int:
        at, end, known = 0, len(buffer), self._known
        while end - at >= _HEAD:
            start = at + _HEAD
            stop = start + _length_at(buffer, at)[0]
            if stop - start > MAX_EVENT_BYTES:
                raise EventLogCorrupt(f"a message of {stop - start} bytes at byte {base + at}")
            if stop + _TAIL > end:
                break
            at = stop + _TAIL
            # A scalar, as nearly all messages are: only wall time, step and the last four bytes differ by point.
            if stop - start > 20 and buffer[start] == _WALL and buffer[start + 9] == _STEP:
                step, key = buffer[start + 10], start + 11
                if step > 0x7F:
                    if buffer[key] < 0x80:  # of two bytes, without a call
                        step, key = step & 0x7F | buffer[key] << 7, key + 1
                    else:
                        step, key = _varint(buffer, start + 10, stop)
                points = known.get(buffer[key : stop - 4])
                if points is not None:
                    points.steps.append(step)
                    points.walls.append(buffer[start + 1 : start + 9])
                    points.values.append(buffer[stop - 4 : stop])
                    continue
            self._message(buffer, start, stop, base)
        return at

    def _message(self, buffer: bytes, start: int, stop: int, base: int) -> None:
        """Reads any Event, and remembers the bytes by which a scalar of this tag is known."""
        wall, step, summary = 0.0, 0, None
        key = 0
        for number, kind, low, high in _fields(buffer, start, stop):
            if number == 1 and kind == 1:
                wall = _double_at(buffer, low)[0]
            elif number == 2 and kind == 0:
                step, key = _varint(buffer, low, stop)
            elif number == 5 and kind == 2:
                summary = (low, high)
            elif number == 7 and kind == 2 and _status(buffer, low, high) == _START and step < 1 << 62:
                self.replaces_from = step if self.replaces_from is None else min(step, self.replaces_from)
        if wall == wall and 0 < wall < 1e11:
            self.first_wall = wall if self.first_wall is None else min(wall, self.first_wall)
            self.last_wall = wall if self.last_wall is None else max(wall, self.last_wall)
        if summary is None or step >= 1 << 62:
            return
        values = [(low, high) for number, kind, low, high in _fields(buffer, *summary) if (number, kind) == (1, 2)]
        for low, high in values:
            tag = self._value(buffer, low, high, step, wall, base)
            plain = len(values) == 1 and high == stop and buffer[stop - 5] == _VALUE
            if tag and plain and buffer[start] == _WALL and buffer[start + 9] == _STEP:
                self._known[buffer[key : stop - 4]] = self._points_of(tag)

    def _value(self, buffer: bytes, low: int, high: int, step: int, wall: float, base: int) -> str:
        """Takes one value of a summary; returns its tag where it was a scalar that ends the value."""
        tag, scalar, picture, ends = "", None, None, False
        for number, kind, first, last in _fields(buffer, low, high):
            if number == 1 and kind == 2:
                tag = buffer[first:last].decode("utf-8", "replace")[:MAX_TAG_CHARS]
            elif number == 2 and kind == 5:
                scalar, ends = buffer[first:last], last == high
            elif number == 4 and kind == 2:
                picture = _encoded(buffer, first, last)
        if not tag:
            return ""
        if picture is not None and len(self.pictures) < MAX_PICTURES:
            offset, length = picture
            self.pictures.append(PictureAt(tag, step, wall, base + offset, length))
        if scalar is None or (tag not in self._pending and len(self._pending) >= MAX_TAGS):
            return ""
        points = self._points_of(tag)
        points.steps.append(step)
        points.walls.append(struct.pack("<d", wall))
        points.values.append(scalar)
        return tag if ends else ""

    def _points_of(self, tag: str) -> _Pending:
        return self._pending.setdefault(tag, _Pending())

    def _flush(self) -> None:
        for tag, points in self._pending.items():
            if not points.steps:
                continue
            if self._points + len(points.steps) > MAX_POINTS:
                self.fault = f"more than {MAX_POINTS} points"
            else:
                self._points += len(points.steps)
                series = self.series.setdefault(tag, Series())
                series.steps.extend(points.steps)
                series.walls.frombytes(b"".join(points.walls))
                series.values.frombytes(b"".join(points.values))
                wall = series.walls[-1]
                if self.last_wall is None or self.last_wall < wall < 1e11:
                    self.last_wall = wall
            points.steps.clear()
            points.walls.clear()
            points.values.clear()


def _varint(buffer: bytes, at: int, stop: int) -> tuple[int, int]:
    """Returns a varint and where what follows it begins; raises EventLogCorrupt for one that does not end."""
    value = shift = 0
    while at < stop and shift < 64:
        byte = buffer[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise EventLogCorrupt(f"a number that does not end, at byte {at} of its part")


def _fields(buffer: bytes, at: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
    """Yields (number, wire type, start, end) of each field of a message; raises EventLogCorrupt."""
    while at < stop:
        tag, at = _varint(buffer, at, stop)
        kind = tag & 7
        if kind == 0:
            _, end = _varint(buffer, at, stop)
        elif kind == 1:
            end = at + 8
        elif kind == 5:
            end = at + 4
        elif kind == 2:
            length, at = _varint(buffer, at, stop)
            end = at + length
        else:
            raise EventLogCorrupt(f"a field of wire type {kind}")
        if end > stop:
            raise EventLogCorrupt("a field that ends after its message")
        yield tag >> 3, kind, at, end
        at = end


def _status(buffer: bytes, low: int, high: int) -> int:
    return next((_varint(buffer, at, high)[0] for number, kind, at, _ in _fields(buffer, low, high)
                 if (number, kind) == (1, 0)), 0)  # fmt: skip


def _encoded(buffer: bytes, low: int, high: int) -> tuple[int, int] | None:
    found = (each for each in _fields(buffer, low, high) if each[:2] == (4, 2))
    return next(((at, end - at) for _, _, at, end in found), None)
