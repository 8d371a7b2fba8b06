"""Each mistake in a tree ends in one sentence that names file, table or token, what was found, and what to do."""

import json
import pickle
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lead_protocol.store.folder import FolderStore
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.example_worlds.nuplan.maps import geometry
from lead_trainer.recipes.nuplan.dataset import whole_sample
from lead_trainer.recipes.nuplan.ingest import bounded_database
from lead_trainer.recipes.nuplan.ingest.bounded_database import open_database
from lead_trainer.recipes.nuplan.ingest.cell_values import vector_of
from lead_trainer.recipes.nuplan.ingest.city_map import read_city_map, read_lanes
from lead_trainer.recipes.nuplan.ingest.geopackage import polygons_of
from lead_trainer.recipes.nuplan.ingest.log_tables import read_log
from lead_trainer.recipes.nuplan.ingest.nuplan_tree import NuplanTree
from lead_trainer.recipes.nuplan.ingest.point_cloud import read_point_cloud
from lead_trainer.recipes.nuplan.preparation import NuplanPreparation
from lead_trainer.recipes.nuplan.prepare_keys import NuplanKeys, data_keys_of
from lead_trainer.recipes.nuplan.targets.bundles import agent_counts, bundle_of_sweep
from unit.nuplan_data.conftest import CACHED, build

CLOUD = Path("nuplan-v1.1/sensor_blobs")
KEYS = NuplanKeys.of(data_keys_of({"data": CACHED}))


class Attack:
    """What a pickle may ask to be run."""

    def __reduce__(self) -> Any:
        return print, ("run",)


def log_file(root: Path) -> Path:
    return sorted(root.rglob("*.db"))[0]


def sql(path: Path, *statements: str, values: tuple[Any, ...] = ()) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        for statement in statements:
            database.execute(statement, values)


def whole_log(root: Path) -> None:
    """Reads everything of the first log that a build reads."""
    tree = NuplanTree(FolderTree(root))
    log = tree.log("mini", log_file(root).stem)
    sweep = next(number for number, cloud in enumerate(log.clouds) if tree.blob(cloud))
    bundle_of_sweep(tree, log, sweep, KEYS)


POSE = "UPDATE ego_pose SET {} WHERE rowid = 41"  # of the first sweep with blobs, at two seconds
FIRST_POSE = "UPDATE ego_pose SET {}"
TWICE = (  # every track has another box in each of its sweeps
    "INSERT INTO lidar_box SELECT randomblob(8), lidar_pc_token, track_token, next_token, prev_token, x + 3, y, z, "
    "width, length, height, vx, vy, vz, yaw, confidence FROM lidar_box"
)


@pytest.mark.parametrize(
    ("statement", "values", "sentence"),
    [
        ("DROP TABLE lidar_box", (), "table lidar_box is missing; fetch the file again"),
        ("ALTER TABLE camera DROP COLUMN distortion", (), "table camera has no column distortion"),
        ("DELETE FROM log", (), "table log has 0 rows, expected one"),
        ("DELETE FROM lidar_pc", (), "table lidar_pc is empty, expected sweeps"),
        ("UPDATE lidar_pc SET scene_token = NULL WHERE rowid = 3", (), "lidar_pc, row 3, scene_token: found NULL"),
        ("UPDATE lidar_pc SET token = 'text' WHERE rowid = 3", (), "lidar_pc, row 3, token: found str 'text'"),
        ("UPDATE image SET ego_pose_token = x'0011223344556677'", (), "0011223344556677 is no row of table ego_pose"),
        ("UPDATE lidar_pc SET timestamp = -5 WHERE rowid = 9", (), "timestamp: found -5, expected microseconds"),
        (
            "UPDATE camera SET rotation = ?",
            (pickle.dumps(Attack()),),
            "rotation: is no pickled list of numbers: it names",
        ),
        (
            "UPDATE camera SET intrinsic = ?",
            (pickle.dumps([1.0]),),
            "intrinsic: found a list, expected a list|intrinsic",
        ),
        ("UPDATE camera SET translation = ?", (pickle.dumps([1.0, 2.0]),), r"translation: found \[2\] numbers"),
        ("UPDATE camera SET translation = ?", (pickle.dumps([1.0, 2.0, float("inf")]),), "found float 'inf'"),
        ("UPDATE camera SET rotation = ?", (pickle.dumps([0.0] * 4),), "found a quaternion of norm 0, expected 1"),
        ("UPDATE camera SET distortion = NULL", (), "distortion: found NULL, expected a pickled list"),
        ("UPDATE camera SET width = 0", (), "found 0 x 48 pixels"),
        ("UPDATE camera SET channel = 'CAM_F0'", (), "CAM_F0 is there twice"),
        ("UPDATE camera SET intrinsic = ?", (pickle.dumps([[0.0] * 3] * 3),), "focal length of 0 or less"),
        (
            FIRST_POSE.format("qw = 0, qx = 0, qy = 0, qz = 0"),
            (),
            "table ego_pose, row .*, qw … qz: found a quaternion",
        ),
        (FIRST_POSE.format("x = NULL"), (), "table ego_pose, row 1, x: found NULL, expected a finite number"),
        (FIRST_POSE.format("y = 9e999"), (), "table ego_pose, row 1, y: found float 'inf'"),
        (FIRST_POSE.format("y = 'far'"), (), "table ego_pose, row 1, y: found str 'far'"),
        ("UPDATE category SET name = 'unicorn'", (), "found 'unicorn', expected one of vehicle, pedestrian"),
        ("UPDATE lidar_box SET yaw = NULL", (), r"table lidar_box, token \w{16}, yaw: found NULL"),
        (
            "UPDATE lidar_box SET lidar_pc_token = x'0011223344556677' WHERE rowid = 7",
            (),
            r"table lidar_box, token \w{16}: lidar_pc_token 0011223344556677 is no row of table lidar_pc",
        ),
        (
            "UPDATE lidar_box SET lidar_pc_token = 'text' WHERE rowid = 7",
            (),
            "lidar_pc_token: found str 'text'",
        ),
        (
            TWICE,
            (),
            r"lidar_box, token \w{16}: track_token \w{16} has a second box in sweep \w{16}, expected one a sweep",
        ),
        ("UPDATE lidar_box SET track_token = x'0011223344556677'", (), "is no row of table track"),
        ("UPDATE log SET map_version = 'atlantis'", (), "has no city 'atlantis', only us-nv"),
        ("UPDATE log SET logfile = 'other'", (), "logfile: found 'other', expected '2021"),
        ("UPDATE scene SET name = NULL", (), "name: found NULL, expected a text"),
    ],
)
def test_a_log_with_a_mistake_is_named_with_table_and_row(
    copy: Path, statement: str, values: tuple[Any, ...], sentence: str
) -> None:
    sql(log_file(copy), statement, values=values)
    with pytest.raises(BadData, match=sentence) as error:
        whole_log(copy)
    assert (str(error.value).count("\n") == 0 and "nuplan-v1.1/" in str(error.value)) or "maps" in str(error.value)


@pytest.mark.parametrize(
    ("table", "column", "value", "found"),
    [
        ("lidar_box", "vx", 1e300, "found 1e\\+300, expected -150 to 150"),
        ("lidar_box", "vy", -1e30, "found -1e\\+30, expected -150 to 150"),
        ("lidar_box", "vx", 151.0, "found 151, expected -150 to 150"),
        ("lidar_box", "x", 1e300, "found 1e\\+300, expected -1e\\+07 to 1e\\+07"),
        ("lidar_box", "y", 2e7, "found 2e\\+07, expected -1e\\+07 to 1e\\+07"),
        ("lidar_box", "z", 2e4, "found 20000, expected -10000 to 10000"),
        ("lidar_box", "width", 1e9, "found 1e\\+09, expected 0.001 to 100"),
        ("lidar_box", "length", 0.0, "found 0, expected 0.001 to 100"),
        ("lidar_box", "height", -1.0, "found -1, expected 0.001 to 100"),
        ("lidar_box", "yaw", 1e15, "found 1e\\+15, expected -12.5664 to 12.5664"),
        ("ego_pose", "x", 1e300, "found 1e\\+300, expected -1e\\+07 to 1e\\+07"),
        ("ego_pose", "vx", 1e9, "found 1e\\+09, expected -150 to 150"),
        ("ego_pose", "acceleration_x", 101.0, "found 101, expected -100 to 100"),
        ("ego_pose", "qw", 3.0, "found 3, expected -2 to 2"),
        ("track", "width", 1e9, "found 1e\\+09, expected 0.001 to 100"),
    ],
)
def test_a_number_that_no_drive_measures_is_named_with_its_range(
    copy: Path, table: str, column: str, value: float, found: str
) -> None:
    sql(log_file(copy), f"UPDATE {table} SET {column} = ?", values=(value,))
    with pytest.raises(BadData, match=rf"table {table}, (row 1|token \w{{16}}), {column}: {found}"):
        whole_log(copy)


def test_chains_that_lead_in_a_circle_and_tracks_without_boxes_do_no_harm(copy: Path) -> None:
    sql(
        log_file(copy),
        "UPDATE lidar_box SET next_token = token, prev_token = token",
        "UPDATE lidar_pc SET next_token = token",
        "INSERT INTO track SELECT x'0011223344556677', category_token, width, length, height FROM track LIMIT 1",
    )
    whole_log(copy)


def test_what_is_no_whole_database_is_named(copy: Path) -> None:
    path = log_file(copy)
    data = path.read_bytes()
    for damaged, sentence in (
        (b"", "is no SQLite database"),
        (b"<html>", "is no SQLite database: it begins with b'<html>'"),
        (data[: len(data) // 2], r"expected \d+ by its header: it is cut off"),
        (data[:100] + bytes(len(data) - 100), "cannot be read|is missing"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(BadData, match=sentence):
            whole_log(copy)


def test_changes_left_beside_a_database_are_named(copy: Path) -> None:
    path = log_file(copy)
    path.with_name(f"{path.name}-wal").write_bytes(b"changes")
    with pytest.raises(BadData, match=r"\.db-wal: holds changes that are not in .*\.db yet; open the database once"):
        whole_log(copy)


def test_a_database_in_wal_mode_without_changes_is_read_and_nothing_is_written(copy: Path) -> None:
    path = log_file(copy)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = {file.name: file.stat().st_mtime_ns for file in path.parent.iterdir()}
    whole_log(copy)
    assert {file.name: file.stat().st_mtime_ns for file in path.parent.iterdir()} == before


@pytest.mark.parametrize(
    ("statements", "sentence"),
    [
        (
            ("ALTER TABLE track RENAME TO kept", "CREATE VIEW track AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL "
             "SELECT i + 1 FROM n) SELECT token, category_token, width, length, height FROM kept, n"),
            "track is a view or virtual table, expected a plain table",
        ),
        (
            ("ALTER TABLE lidar_pc DROP COLUMN filename",
             "ALTER TABLE lidar_pc ADD COLUMN filename TEXT AS (hex(zeroblob(8000000)))"),
            "table lidar_pc has no column filename",
        ),
        (("UPDATE scene SET name = hex(zeroblob(12000000))",), "table scene cannot be read: .*too big"),
    ],
)  # fmt: skip
def test_sql_of_the_file_is_not_run_and_huge_values_are_not_read(
    copy: Path, statements: tuple[str, ...], sentence: str
) -> None:
    sql(log_file(copy), *statements)
    with pytest.raises(BadData, match=sentence):
        whole_log(copy)


def test_a_statement_that_never_ends_is_stopped(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_database, "MAX_STEPS", 1)
    monkeypatch.setattr(bounded_database, "_STEPS_A_CALL", 1)
    with pytest.raises(BadData, match=r"it took more than 1 steps; fetch the file again"):
        read_log(log_file(copy), "log.db")


def test_pages_that_are_met_again_and_again_give_no_more_than_the_file_holds(copy: Path) -> None:
    """A tree of pages may be shared: a small file would then give rows until memory is full."""
    path = log_file(copy)
    with open_database(path, "log.db") as database:
        database._size = 2000
        with pytest.raises(BadData, match="table ego_pose gives more than the file's 2000 bytes can hold"):
            database.rows("ego_pose", ("token",))


@pytest.mark.parametrize("kind", ["db", "gpkg"])
def test_a_database_damaged_anywhere_is_bad_data_or_read(copy: Path, kind: str) -> None:
    path = sorted(copy.rglob(f"*.{kind}"))[0]
    whole, random = path.read_bytes(), np.random.default_rng(5)
    for _ in range(40):
        data = bytearray(whole)
        for at in random.integers(0, len(whole), 12):
            data[at] = random.integers(256)
        path.write_bytes(data)
        try:
            if kind == "db":
                read_log(path, "log.db")
            else:
                read_city_map(path, "map.gpkg"), read_lanes(path, "map.gpkg")
        except BadData as error:
            assert "log.db" in str(error) or "map.gpkg" in str(error)


def cloud_with(header: str, points: bytes = bytes(60)) -> bytes:
    return header.encode() + points


HEADER = (
    "VERSION 0.7\nFIELDS x y z intensity ring lidar_info\nSIZE 4 4 4 1 1 1\nTYPE F F F U U U\nCOUNT 1 1 1 1 1 1\n"
    "WIDTH 4\nHEIGHT 1\nPOINTS 4\nDATA binary\n"
)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (cloud_with(HEADER.replace("binary", "ascii")), "DATA: found 'ascii', expected 'binary'"),
        (cloud_with(HEADER.replace("POINTS 4", "POINTS 5")), "POINTS: found 5, expected WIDTH x HEIGHT, 4 x 1"),
        (cloud_with(HEADER.replace("4 4 4", "4 4 9")), "field z is of type F9 x 1"),
        (cloud_with(HEADER.replace("POINTS 4", "POINTS many")), "POINTS: found 'many', expected a whole number"),
        (cloud_with(HEADER.replace("POINTS 4\n", "")), r"POINTS: found None, expected 1 values"),
        (cloud_with(HEADER.replace("x y z", "x y w")), "FIELDS: found x y w intensity ring lidar_info, expected x y z"),
        (cloud_with(HEADER, bytes(59)), "found 59 bytes of points, expected 60: it is cut off"),
        (cloud_with(HEADER, struct.pack("<3f", float("nan"), 0, 0) + bytes(48)), r"point 0 is \[nan, 0.0, 0.0\]"),
        (
            cloud_with(HEADER.replace("WIDTH 4", "WIDTH 999999999").replace("POINTS 4", "POINTS 999999999")),
            "POINTS: found 999999999, .* and at most 4000000",
        ),
        (cloud_with(HEADER, struct.pack("<3f", 0, -3e38, 0) + bytes(48)), "point 0 is .*, expected at most 10000 m"),
        (cloud_with(HEADER.replace("TYPE F", "TYPE I")), "field x: found type I, expected F: metres"),
        (cloud_with(HEADER, bytes(60) + b"more"), "found more data behind its 4 points, expected zero bytes"),
        (cloud_with("VIEWPOINT 0 nan 0 1 0 0 0\n" + HEADER), "VIEWPOINT: found '0 nan 0 1 0 0 0', expected 7 finite"),
        (cloud_with("VIEWPOINT 0 0 0 1\n" + HEADER), "VIEWPOINT: found '0 0 0 1', expected 7 finite numbers"),
        (b"no cloud", "is no PCD file: there is no line DATA"),
        (b"", "is no PCD file"),
        (b"FIELDS " * 2000, "is no PCD file"),
    ],
)
def test_a_cloud_with_a_mistake_is_named_with_its_header(data: bytes, sentence: str) -> None:
    with pytest.raises(BadData, match=rf"^file a\.pcd.*{sentence}"):
        read_point_cloud(data, "a.pcd")


def test_a_good_cloud_is_read_by_its_header_and_zeros_behind_it_are_no_points() -> None:
    points = np.zeros(4, np.dtype([("xyz", "<f4", 3), ("rest", "u1", 3)]))
    points["xyz"], points["rest"] = np.arange(12).reshape(4, 3), (7, 8, 9)
    cloud = read_point_cloud(cloud_with(HEADER, points.tobytes() + bytes(32)), "a.pcd")
    assert cloud.dtype == np.float32 and cloud.tolist() == [
        [0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11], [7] * 4, [8] * 4, [9] * 4,
    ]  # fmt: skip


def test_a_cloud_of_no_points_is_a_sweep_that_met_nothing() -> None:
    header = HEADER.replace("WIDTH 4", "WIDTH 0").replace("POINTS 4", "POINTS 0")
    assert read_point_cloud(cloud_with("VIEWPOINT 0 0 0 1 0 0 0\n" + header), "a.pcd").shape == (6, 0)


SQUARE = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.0, 0.0]])


def polygon(points: Any, kind: int = 3, axes: int = 2) -> bytes:
    return struct.pack("<BII", 1, kind, 1) + struct.pack("<I", len(points)) + np.asarray(points, "<f8").tobytes()


def blob(body: bytes, flags: int = 1, envelope: bytes = b"") -> bytes:
    return struct.pack("<2sBBi", b"GP", 0, flags, 4326) + envelope + body


def test_heights_measures_envelopes_and_several_polygons_are_read() -> None:
    high = np.concatenate([SQUARE, np.full((5, 1), 9.0)], axis=1)
    both = struct.pack("<BII", 1, 6, 2) + polygon(SQUARE) + polygon(SQUARE + 5)
    bodies = [
        (blob(polygon(SQUARE)), 1), (blob(polygon(high, 1003)), 1), (blob(polygon(high, 2003)), 1), (blob(both), 2),
        (blob(polygon(SQUARE), 3, bytes(32)), 1),
    ]  # fmt: skip
    for data, count in bodies:
        found = polygons_of(data, "here", lambda points: points)
        assert len(found) == count and (found[0][0] == SQUARE).all()


def nested(depth: int) -> bytes:
    """A collection in a collection and so on: a parser that follows it runs out of stack."""
    return struct.pack("<BII", 1, 7, 1) * depth + polygon(SQUARE)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (blob(nested(100_000)), "geometry of type 7, expected polygon or multipolygon"),
        (blob(struct.pack("<BII", 1, 6, 1) * 100_000), "geometry of type 6 in a multipolygon"),
        (blob(polygon(SQUARE, 2)), "geometry of type 2"),
        (b"XX" + bytes(40), "no header GP of version 0"),
        (blob(polygon(SQUARE), 0x21), "an extended geometry"),
        (blob(polygon(SQUARE), 0x0D), "envelope of kind 6"),
        (blob(polygon(SQUARE)[:-8]), "5 points in 72 bytes"),
        (blob(struct.pack("<BIII", 1, 3, 1, 0xFFFFFFFF)), "parts, more than"),
        (blob(struct.pack("<BII", 1, 3, 0xFFFFFFFF)), "4294967295 parts, more than 10000"),
        (blob(polygon(SQUARE * np.nan)), "coordinates that are not finite"),
        (blob(polygon(SQUARE[:2])), "found a polygon of 2 points, expected 4 or more"),
        (blob(b""), "is no polygon of a GeoPackage"),
        ("text", "found a str, expected a geometry"),
        (None, r"found no geometry \(NULL\), expected a polygon"),
        (blob(struct.pack("<BII", 1, 3, 0), 0x11), "found an empty shape, expected a polygon with points"),
        (blob(struct.pack("<BII", 1, 6, 0), 0x11), "found an empty shape"),
        (blob(struct.pack("<BII", 1, 6, 2) + polygon(SQUARE) + struct.pack("<BII", 1, 3, 0)), "found an empty shape"),
    ],
)
def test_a_geometry_with_a_mistake_is_named_at_once(data: Any, sentence: str) -> None:
    with pytest.raises(BadData, match=rf"^here: .*{sentence}"):
        polygons_of(data, "here", lambda points: points)


def map_file(root: Path) -> Path:
    return sorted(root.rglob("us-nv*/*/map.gpkg"))[0]


@pytest.mark.parametrize(
    ("statements", "values", "sentence"),
    [
        (("DROP TABLE crosswalks",), (), "table gpkg|table crosswalks is missing"),
        (("DELETE FROM lanes_polygons",), (), "table lanes_polygons is empty, expected the areas of a city"),
        (
            ("UPDATE gpkg_geometry_columns SET srs_id = 3857 WHERE table_name = 'walkways'",), (),
            r"table walkways: found coordinate system 3857, expected 4326 \(degrees\)",
        ),
        (("UPDATE meta SET value = 'epsg:99999999'",), (), "EPSG:99999999 is no projected system"),
        (("UPDATE meta SET value = 'moon'",), (), "key projectedCoordSystem: found 'moon', expected a system such as"),
        (("UPDATE walkways SET geom = NULL",), (), r"table walkways, fid 1: found no geometry \(NULL\)"),
        (
            ("UPDATE lanes_polygons SET geom = x'47500011e6100000010300000000000000'",), (),
            "table lanes_polygons, fid 1: found an empty shape",
        ),
        (("UPDATE walkways SET geom = x'00'",), (), "table walkways, fid 1: is no polygon of a GeoPackage"),
        (
            ("UPDATE walkways SET geom = ?",), (geometry(SQUARE * 1e6, 3),),
            "coordinates .*, expected degrees of EPSG:4326",
        ),
    ],
)  # fmt: skip
def test_a_map_with_a_mistake_is_named_with_table_and_row(
    copy: Path, statements: tuple[str, ...], values: tuple[Any, ...], sentence: str
) -> None:
    sql(map_file(copy), *statements, values=values)
    with pytest.raises(BadData, match=rf"us-nv.*map\.gpkg.*({sentence})"):
        whole_log(copy)


def test_an_empty_layer_is_no_mistake_and_an_outline_that_crosses_itself_is_mended(copy: Path) -> None:
    bow = np.array([[-117.0, 36.0], [-116.0, 37.0], [-116.0, 36.0], [-117.0, 37.0], [-117.0, 36.0]])
    sql(map_file(copy), "DELETE FROM crosswalks")
    sql(map_file(copy), "UPDATE stop_polygons SET geom = ? WHERE fid = 1", values=(geometry(bow, 3),))
    whole_log(copy)
    tangle = np.random.default_rng(0).uniform([-117, 36], [-116, 37], (5000, 2))
    tangle[-1] = tangle[0]
    sql(map_file(copy), "UPDATE stop_polygons SET geom = ? WHERE fid = 1", values=(geometry(tangle, 3),))
    with pytest.raises(BadData, match="fid 1: the outline of 5000 points crosses itself"):
        whole_log(copy)


def damage(path: Path, data: bytes | None) -> None:
    path.unlink() if data is None else path.write_bytes(data)


@pytest.mark.parametrize(
    ("pattern", "data", "sentence"),
    [
        ("us-nv*/*/map.gpkg", None, r"map\.gpkg is missing; fetch nuplan-maps-v1\.0 again"),
        ("nuplan-maps-v1.0.json", b"[", "is no JSON"),
        ("nuplan-maps-v1.0.json", b"[" * 100_000, "is no JSON: it is nested too deep"),
        ("nuplan-maps-v1.0.json", b"[1]", "found a list, expected an object of cities"),
        ("nuplan-maps-v1.0.json", json.dumps({"us-nv-las-vegas-strip": {"version": "../.."}}).encode(), "version"),
    ],
)
def test_maps_that_are_missing_or_odd_are_named(copy: Path, pattern: str, data: bytes | None, sentence: str) -> None:
    damage(next((copy / "maps").rglob(pattern)), data)
    with pytest.raises(BadData, match=sentence):
        whole_log(copy)


def scan(root: Path, **data: Any) -> Any:
    preparation = NuplanPreparation()
    keys = preparation.config_keys({"data": {**CACHED, **data}})
    return preparation.scan(FolderTree(root), keys, ["train", "val"])


def test_n_53_a_missing_picture_or_cloud_is_counted_and_a_broken_one_is_named(copy: Path) -> None:
    blobs = sorted((copy / CLOUD).glob("*"))[0]
    next(iter(sorted((blobs / "CAM_F0").iterdir()))).unlink()
    next(iter(sorted((blobs / "MergedPointCloud").iterdir()))).unlink()
    found = scan(copy)
    reasons = {verdict.reason: verdict.frames for verdict in found.verdicts if verdict.route == f"{blobs.name}/0002"}
    assert reasons["picture_missing"] in (0, 1) and reasons["cloud_missing"] == 36 + 1
    assert len(found.samples) == 16 - 1 - reasons["picture_missing"]
    for file in (blobs / "CAM_L0").iterdir():
        file.write_bytes(file.read_bytes()[:200])
    preparation = NuplanPreparation()
    keys = preparation.config_keys({"data": CACHED})
    key = next(key for key in found.samples if key.route == f"{blobs.name}/0002")
    with pytest.raises(BadData, match=r"CAM_L0/\w+\.jpg is no whole picture"):
        preparation.record(FolderTree(copy), keys, key)


def test_a_tree_without_any_picture_is_an_error_that_counts_the_reasons(copy: Path, tmp_path: Path) -> None:
    for picture in copy.rglob("CAM_F0/*.jpg"):
        picture.unlink()
    sentence = r"no frame of \d+ routes is usable \(.*\) for train, val \(.*picture_missing: 16 frames"
    with pytest.raises(BadData, match=sentence):
        build(copy, FolderStore(tmp_path / "store"))


def test_a_tree_without_logs_and_a_split_that_is_not_there_are_named(copy: Path) -> None:
    with pytest.raises(BadConfig, match=r"data\.split: found 'mimi'; did you mean mini\?"):
        scan(copy, split="mimi")
    with pytest.raises(BadData, match=r"the tree has no log of nuPlan: expected nuplan-v1\.1/splits"):
        scan(copy / "maps")


def test_a_picture_of_another_size_is_named(copy: Path) -> None:
    sql(log_file(copy), "UPDATE camera SET width = 81")
    with pytest.raises(BadData, match=r"\.jpg: found 80 x 48 pixels, expected 81 x 48"):
        whole_log(copy)


@pytest.mark.parametrize("make", [lambda: b"", lambda: pickle.dumps(Attack()), lambda: b"\x80\x04r\xff\xff\xff\x7f."])
def test_a_blob_that_is_no_list_runs_nothing_and_takes_no_memory(
    make: Callable[[], bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BadData, match="here: is no pickled list of numbers"):
        vector_of(make(), (3,), "here")
    assert "run" not in capsys.readouterr().out
    with pytest.raises(BadData, match="here: found 5000 bytes, expected a pickled list"):
        vector_of(bytes(5000), (3,), "here")


def test_a_sweep_without_boxes_is_a_sample_without_agents(copy: Path) -> None:
    sql(log_file(copy), "DELETE FROM lidar_box")
    tree = NuplanTree(FolderTree(copy))
    log = tree.log("mini", log_file(copy).stem)
    sweep = next(number for number, cloud in enumerate(log.clouds) if tree.blob(cloud))
    sample = whole_sample(bundle_of_sweep(tree, log, sweep, KEYS))
    assert sample["agent_valid"].tolist() == [False] and not sample["occupied"].any() and sample["known"].any()
    assert sample["boxes"].shape == (1, 7) and sample["futures"].shape == (1, 8, 4)
    assert agent_counts(log, [sweep], KEYS) == [0]
