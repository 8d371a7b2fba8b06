"""Geometries of a GeoPackage: its binary header and the well-known binary behind it, as outlines in metres.

Read by a parser of our own for the five kinds that nuPlan's maps may have (OGC 12-128r18, clause 2.1.3): a geometry
library's would follow collections in collections as deep as a file has them. Heights (Z) and measures (M) are dropped.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lead_trainer.errors import BadData
from lead_trainer.recipes.nuplan.geometry import Doubles

MAX_RINGS = 10_000  # of one geometry
_ENVELOPE_BYTES = {0: 0, 1: 32, 2: 48, 3: 48, 4: 64}
_POINT, _LINE, _POLYGON, _MULTI_LINE, _MULTI_POLYGON = 1, 2, 3, 5, 6
_MEMBERS = {_MULTI_LINE: _LINE, _MULTI_POLYGON: _POLYGON}

Rings = tuple[Doubles, ...]  # (points, 2) each: the outline, then holes
Project = Callable[[Doubles], Doubles]


class _Malformed(ValueError):
    """What is no geometry."""


@dataclass
class _Reader:
    data: bytes
    at: int

    def take(self, form: str) -> tuple[float, ...]:
        """Returns the next numbers."""
        found = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return found

    def kind(self) -> tuple[str, int, int]:
        """Returns byte order, kind and axes of the geometry that begins here."""
        (order,) = self.take("B")
        if order not in (0, 1):
            raise _Malformed(f"byte order {order}")
        sign = "<" if order else ">"
        code = int(self.take(f"{sign}I")[0])
        kind, more = code % 1000, code // 1000
        if more not in (0, 1, 2, 3):
            raise _Malformed(f"geometry of type {code}")
        return sign, kind, 2 + (more in (1, 3)) + (more in (2, 3))

    def points(self, sign: str, axes: int, count: int) -> Doubles:
        """Returns x and y of points (n, 2)."""
        size = 8 * axes * count
        if count < 0 or self.at + size > len(self.data):
            raise _Malformed(f"{count} points in {len(self.data) - self.at} bytes")
        values = np.frombuffer(self.data, f"{sign}f8", axes * count, self.at).reshape(count, axes)[:, :2]
        self.at += size
        if not np.isfinite(values).all():
            raise _Malformed("coordinates that are not finite")
        return values.astype(np.float64)

    def count(self, sign: str, limit: int) -> int:
        """Returns the next count."""
        count = int(self.take(f"{sign}I")[0])
        if count > limit:
            raise _Malformed(f"{count} parts, more than {limit}")
        return count


def polygons_of(value: object, where: str, project: Project) -> list[Rings]:
    """Returns the polygons of a geometry's blob, one or several; raises BadData for another kind or broken bytes."""
    return _shapes(value, where, project, _POLYGON, "polygon")


def lines_of(value: object, where: str, project: Project) -> list[Doubles]:
    """Returns the lines (points, 2) of a geometry's blob; raises BadData like `polygons_of`."""
    return [rings[0] for rings in _shapes(value, where, project, _LINE, "line")]


def _shapes(value: object, where: str, project: Project, wanted: int, name: str) -> list[Rings]:
    if value is None:
        raise BadData(f"{where}: found no geometry (NULL), expected a {name}; fetch the map again")
    if not isinstance(value, bytes):
        raise BadData(f"{where}: found a {type(value).__name__}, expected a geometry; fetch the map again")
    try:
        found = _members(_Reader(value, _begin(value)), wanted, name)
    except (_Malformed, struct.error, ValueError) as error:
        raise BadData(f"{where}: is no {name} of a GeoPackage: {error}; fetch the map again") from error
    if not found or not all(found):
        raise BadData(f"{where}: found an empty shape, expected a {name} with points; fetch the map again")
    least = 4 if wanted == _POLYGON else 2
    for ring in (ring for rings in found for ring in rings):
        if len(ring) < least:
            raise BadData(f"{where}: found a {name} of {len(ring)} points, expected {least} or more; fetch it again")
    try:
        return [tuple(project(ring) for ring in rings) for rings in found]
    except ValueError as error:
        raise BadData(f"{where}: found {error}; fetch the map again") from error


def _begin(value: bytes) -> int:
    """Returns where the well-known binary begins."""
    if value[:2] != b"GP" or len(value) < 8 or value[2] != 0:
        raise _Malformed("no header GP of version 0")
    flags = value[3]
    if flags & 0x20:
        raise _Malformed("an extended geometry")
    envelope = (flags >> 1) & 7
    if envelope not in _ENVELOPE_BYTES:
        raise _Malformed(f"envelope of kind {envelope}")
    return 8 + _ENVELOPE_BYTES[envelope]


def _members(reader: _Reader, wanted: int, name: str) -> list[Rings]:
    sign, kind, axes = reader.kind()
    if kind == wanted:
        return [_rings(reader, sign, axes, wanted)]
    if _MEMBERS.get(kind) != wanted:
        raise _Malformed(f"geometry of type {kind}, expected {name} or multi{name}")
    found = []
    for _ in range(reader.count(sign, MAX_RINGS)):
        inner_sign, inner, inner_axes = reader.kind()
        if inner != wanted:
            raise _Malformed(f"geometry of type {inner} in a multi{name}")
        found.append(_rings(reader, inner_sign, inner_axes, wanted))
    return found


def _rings(reader: _Reader, sign: str, axes: int, kind: int) -> Rings:
    most = len(reader.data)
    rings = 1 if kind == _LINE else reader.count(sign, MAX_RINGS)
    return tuple(reader.points(sign, axes, reader.count(sign, most)) for _ in range(rings))
