"""The map of one city in metres of its UTM zone: layers of areas, lanes, and lane connectors.

Geometry of `map.gpkg` is in degrees (EPSG:4326); its table `meta` names the projected system. An area that is not
valid (an outline that crosses itself) is taken as shapely's `make_valid` has it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyproj
import shapely
import structlog

from lead_trainer.errors import BadData
from lead_trainer.recipes.nuplan.geometry import Doubles
from lead_trainer.recipes.nuplan.ingest.bounded_database import Database, open_database
from lead_trainer.recipes.nuplan.ingest.cell_values import integer_of, numbers_of, text_of
from lead_trainer.recipes.nuplan.ingest.geopackage import lines_of, polygons_of

log = structlog.get_logger(__name__)

DEGREES = 4326  # EPSG
MAX_POINTS, MAX_MENDED = 200_000, 2_000  # of an area's outline; of one that crosses itself and is made valid
# Tables of the areas of each layer, in the order of data_keys.LAYERS.
LAYER_TABLES: Mapping[str, tuple[str, ...]] = {
    "drivable": ("road_segments", "intersections", "generic_drivable_areas", "carpark_areas"),
    "lane": ("lanes_polygons", "gen_lane_connectors_scaled_width_polygons"),
    "crosswalk": ("crosswalks",),
    "walkway": ("walkways",),
    "stop": ("stop_polygons",),
}
_NEVER_EMPTY = ("lanes_polygons", "road_segments")


@dataclass(frozen=True)
class Lane:
    """A lane by its middle line."""

    line: Doubles  # (n, 2) metres
    speed_limit: float | None  # m/s
    roadblock: str
    area: float  # m² of its polygon


@dataclass(frozen=True)
class Connector:
    """The way from a lane to another over an intersection."""

    line: Doubles
    source: str  # the lane that it leaves; `exit_lane_fid` of the table
    target: str  # the lane that it enters; `entry_lane_fid`
    stop_lines: tuple[str, ...]


class CityMap:
    """Areas by layer, indexed by where they are."""

    def __init__(self, areas: Mapping[str, Sequence[shapely.Geometry]]) -> None:
        self._areas = {layer: np.array(list(found), object) for layer, found in areas.items()}
        self._trees = {layer: shapely.STRtree(found) for layer, found in self._areas.items()}

    def areas_near(self, layer: str, x: float, y: float, reach: float) -> "list[shapely.Geometry]":
        """Returns the areas of a layer that may reach into the square around a place, metres."""
        box = shapely.box(x - reach, y - reach, x + reach, y + reach)
        return list(self._areas[layer][np.sort(self._trees[layer].query(box))])


def read_city_map(file: Path, path: str) -> CityMap:
    """Returns the areas of a map; raises BadData naming path, table and row for what is wrong with it."""
    with open_database(file, path) as database:
        project = _projection(database)
        areas = {
            layer: [area for table in tables for _, found in _areas(database, table, project) for area in found]
            for layer, tables in LAYER_TABLES.items()
        }
    return CityMap(areas)


def read_lanes(file: Path, path: str) -> tuple[dict[str, Lane], dict[str, Connector]]:
    """Returns lanes and connectors by their number; raises BadData like `read_city_map`."""
    with open_database(file, path) as database:
        project = _projection(database)
        lane_lines, connector_lines = _middle_lines(database, project)
        areas = dict(_areas(database, "lanes_polygons", project))
        lanes = {}
        for fid, number, group, limit in database.rows(
            "lanes_polygons", ("fid", "lane_fid", "lane_group_fid", "speed_limit_mps")
        ):
            where = f"{path}: table lanes_polygons, fid {fid}"
            name = _number(number, where)
            lanes[name] = Lane(
                _line(lane_lines, name, where),
                None if limit is None else numbers_of([limit], where)[0],
                _number(group, where),
                float(sum(area.area for area in areas[fid])),
            )
        connectors = {}
        columns = ("fid", "exit_lane_fid", "entry_lane_fid", "traffic_light_stop_line_fids")
        for fid, source, target, stops in database.rows("lane_connectors", columns):
            where = f"{path}: table lane_connectors, fid {fid}"
            listed = () if not stops else tuple(text.strip() for text in text_of(stops, where).split(","))
            name = _number(fid, where)
            line = _line(connector_lines, name, where)
            connectors[name] = Connector(line, _number(source, where), _number(target, where), listed)
    return lanes, connectors


class _Projection:
    """From degrees to metres."""

    def __init__(self, target: str, where: str) -> None:
        try:
            self._transformer = pyproj.Transformer.from_crs(f"EPSG:{DEGREES}", target, always_xy=True)
        except pyproj.exceptions.ProjError as error:
            raise BadData(f"{where}: {target} is no projected system: {error}; fetch the map again") from error
        self._where = where

    def __call__(self, points: Doubles) -> Doubles:
        """Returns points (n, 2) of longitude and latitude in metres."""
        if np.abs(points[:, 0]).max() > 180 or np.abs(points[:, 1]).max() > 90:
            raise ValueError(f"coordinates {points[0].tolist()}, expected degrees of EPSG:{DEGREES}")
        metres = np.stack(self._transformer.transform(points[:, 0], points[:, 1]), axis=1)
        if not np.isfinite(metres).all():
            raise ValueError(f"coordinates {points[0].tolist()} outside of the map's zone")
        return metres


def _projection(database: Database) -> _Projection:
    where = f"{database.name}: table meta, key projectedCoordSystem"
    rows = database.rows("meta", ("key", "value"), "LIMIT 1000")
    target = {str(key): value for key, value in rows}.get("projectedCoordSystem")
    if not isinstance(target, str) or not target.upper().startswith("EPSG:") or not target[5:].isdigit():
        raise BadData(f"{where}: found {target!r}, expected a system such as EPSG:32611; fetch the map again")
    return _Projection(target.upper(), where)


def _areas(database: Database, table: str, project: _Projection) -> "list[tuple[int, list[shapely.Geometry]]]":
    """Returns the areas of each row of a table, by its fid."""
    _check_system(database, table)
    rows = database.rows(table, ("fid", "geom"))
    if not rows and table in _NEVER_EMPTY:
        raise BadData(f"{database.name}: table {table} is empty, expected the areas of a city; fetch the map again")
    found: list[tuple[int, list[shapely.Geometry]]] = []
    for fid, value in rows:
        rings = polygons_of(value, f"{database.name}: table {table}, fid {fid}", project)
        found.append(
            (fid, [_area(outline, holes, f"{database.name}: table {table}, fid {fid}") for outline, *holes in rings])
        )
    return found


def _area(outline: Doubles, holes: Sequence[Doubles], where: str) -> shapely.Geometry:
    """Returns the area of an outline, made valid where it crosses itself; raises BadData where that never ends."""
    points = len(outline) + sum(map(len, holes))
    if points > MAX_POINTS:
        raise BadData(
            f"{where}: found an outline of {points} points, expected at most {MAX_POINTS}; fetch the map again"
        )
    area = shapely.Polygon(outline, holes)
    if area.is_valid:
        return area
    if points > MAX_MENDED:
        raise BadData(f"{where}: the outline of {points} points crosses itself; fetch the map again")
    return shapely.make_valid(area)


def _check_system(database: Database, table: str) -> None:
    rows = database.rows("gpkg_geometry_columns", ("srs_id",), "WHERE table_name = ?", (table,))
    if [row[0] for row in rows] != [DEGREES]:
        listed = ", ".join(str(row[0]) for row in rows) or "none"
        raise BadData(
            f"{database.name}: table {table}: found coordinate system {listed}, expected {DEGREES} (degrees); "
            "fetch the map again"
        )


def _middle_lines(database: Database, project: _Projection) -> tuple[dict[str, Doubles], dict[str, Doubles]]:
    """Returns the middle lines of lanes and of connectors."""
    _check_system(database, "baseline_paths")
    lanes: dict[str, Doubles] = {}
    connectors: dict[str, Doubles] = {}
    for fid, lane, connector, value in database.rows(
        "baseline_paths", ("fid", "lane_fid", "lane_connector_fid", "geom")
    ):
        where = f"{database.name}: table baseline_paths, fid {fid}"
        lines = lines_of(value, where, project)
        for owner, kept in ((lane, lanes), (connector, connectors)):
            if owner is not None:
                kept[_number(owner, where)] = lines[0]
    return lanes, connectors


def _line(lines: Mapping[str, Doubles], name: str, where: str) -> Doubles:
    if name not in lines:
        raise BadData(f"{where}: {name} has no line in table baseline_paths; fetch the map again")
    return lines[name]


def _number(value: object, where: str) -> str:
    return str(integer_of(value, where))
