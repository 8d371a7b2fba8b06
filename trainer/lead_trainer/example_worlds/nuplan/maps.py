"""The made-up towns' maps as GeoPackages in nuPlan's tables: geometry in degrees, the projected system in `meta`."""

import json
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pyproj

from lead_trainer.example_worlds.nuplan.town import CROSSWALK_M, LANE_M, PARK_M, STOP_M, Town
from lead_trainer.recipes.nuplan.geometry import Doubles

ARCS = 8  # that a lane is cut into
LIMIT_MPS = 9.0
_DEGREES = 4326
_POLYGON, _LINE = 3, 2
_TABLES = {
    "lanes_polygons": "lane_fid INTEGER, lane_group_fid INTEGER, lane_index INTEGER, speed_limit_mps REAL",
    "lane_connectors": "exit_lane_fid INTEGER, entry_lane_fid INTEGER, traffic_light_stop_line_fids TEXT",
    "gen_lane_connectors_scaled_width_polygons": "lane_connector_fid INTEGER",
    "baseline_paths": "lane_fid INTEGER, lane_connector_fid INTEGER",
    "road_segments": "gen_name TEXT",
    "intersections": "intersection_type_fid INTEGER",
    "generic_drivable_areas": "kind TEXT",
    "carpark_areas": "heading REAL",
    "crosswalks": "intersection_fid INTEGER",
    "walkways": "kind TEXT",
    "stop_polygons": "stop_polygon_type_fid INTEGER",
}


def write_maps(folder: Path, towns: Sequence[Town]) -> None:
    """Writes the index of cities and a GeoPackage each below `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    index = {town.city: {"version": town.version, "layers": {}} for town in towns}
    (folder / "nuplan-maps-v1.0.json").write_text(json.dumps(index, indent=1))
    for town in towns:
        path = folder / town.city / town.version / "map.gpkg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as database, database:
            _write(database, town)


def _write(database: sqlite3.Connection, town: Town) -> None:
    database.execute("CREATE TABLE meta (key TEXT, value TEXT)")
    database.execute("INSERT INTO meta VALUES ('projectedCoordSystem', ?)", (f"epsg:{town.epsg}",))
    database.execute(
        "CREATE TABLE gpkg_geometry_columns (table_name TEXT, column_name TEXT, geometry_type_name TEXT, "
        "srs_id INTEGER, z TINYINT, m TINYINT)"
    )
    for table, columns in _TABLES.items():
        name = "LINESTRING" if table in ("lane_connectors", "baseline_paths") else "POLYGON"
        database.execute(f"CREATE TABLE {table} (fid INTEGER PRIMARY KEY, geom BLOB, {columns})")
        database.execute("INSERT INTO gpkg_geometry_columns VALUES (?, 'geom', ?, ?, 0, 0)", (table, name, _DEGREES))
    projection = pyproj.Transformer.from_crs(f"EPSG:{town.epsg}", f"EPSG:{_DEGREES}", always_xy=True)
    for table, kind, points, values in _features(town):
        degrees = np.stack(projection.transform(points[:, 0], points[:, 1]), axis=1)
        marks = ", ".join("?" * (1 + len(values)))
        names = ", ".join(["geom", *(column.split()[0] for column in _TABLES[table].split(", "))])
        database.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", (geometry(degrees, kind), *values))


def _features(town: Town) -> Iterator[tuple[str, int, Doubles, tuple[object, ...]]]:
    """Yields table, kind, points in metres, and the values of the columns behind `geom`."""
    arc = 2 * np.pi / ARCS
    for number in range(ARCS):
        begin, end = town.turn + number * arc, town.turn + (number + 1) * arc
        yield "road_segments", _POLYGON, town.sector(town.inner, town.outer, begin, end), (f"arc {number}",)
        yield "walkways", _POLYGON, town.sector(town.outer, town.walkway, begin, end), ("",)
        for lane, radius in enumerate((town.radius, town.radius + LANE_M)):
            fid = 2000 + 100 * lane + number
            area = town.sector(radius - LANE_M / 2, radius + LANE_M / 2, begin, end)
            angles = np.linspace(begin, end, 16) if lane == 0 else np.linspace(end, begin, 16)
            yield "lanes_polygons", _POLYGON, area, (fid, 1000 + number, lane, LIMIT_MPS)
            yield "baseline_paths", _LINE, town.place(radius, angles), (fid, None)
    for middle in town.crosswalk_angles():
        half = CROSSWALK_M / 2
        reach = half / town.radius
        yield "crosswalks", _POLYGON, town.sector(town.inner, town.outer, middle - reach, middle + reach), (0,)
        far = (half + STOP_M) / town.radius
        area = town.sector(town.inner, town.radius + LANE_M / 2, middle - far, middle - reach)
        yield "stop_polygons", _POLYGON, area, (0,)
    for begin, end in town.park_angles():
        yield "carpark_areas", _POLYGON, town.sector(town.walkway, town.walkway + PARK_M, begin, end), (0.0,)


def geometry(points: Doubles, kind: int) -> bytes:
    """Returns a GeoPackage's blob of an outline or line (n, 2) in degrees."""
    head = struct.pack("<2sBBi", b"GP", 0, 1, _DEGREES) + struct.pack("<BI", 1, kind)
    rings = struct.pack("<I", 1) if kind == _POLYGON else b""
    return head + rings + struct.pack("<I", len(points)) + np.ascontiguousarray(points, "<f8").tobytes()
