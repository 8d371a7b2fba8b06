"""Each mistake in a tree ends in one sentence that names file or row, what was found, and what to do."""

import io
import json
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from structlog.testing import capture_logs

from lead_trainer.data.source_tree import FolderTree
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.example_worlds.world.tree import ExampleTree, write_example_tree
from lead_trainer.recipes.world.ingest.can_bus import can_actions
from lead_trainer.recipes.world.ingest.pictures import encoded, read_picture
from lead_trainer.recipes.world.ingest.processed_tree import ACTIONS, METADATA, ProcessedTree, read_actions
from lead_trainer.recipes.world.ingest.scenes import Scene, SceneSource, has_gap, sorted_out
from lead_trainer.recipes.world.ingest.sources import open_source
from lead_trainer.recipes.world.prepare_dataset import prepare
from lead_trainer.recipes.world.prepare_keys import WorldKeys, data_keys_of

TABLES = "v1.0-trainval"
Rows = list[dict[str, Any]]
PICTURE = np.random.default_rng(0).integers(0, 256, (32, 48, 3), np.uint8)
GOOD_JPEG = encoded(PICTURE)


def opened(root: Path, **data: Any) -> SceneSource:
    return open_source(FolderTree(root), WorldKeys.of(data_keys_of({"data": data})))


def change(root: Path, table: str, edit: Callable[[Rows], Any]) -> None:
    path = root / TABLES / f"{table}.json"
    rows = json.loads(path.read_text())
    edit(rows)
    path.write_text(json.dumps(rows))


def lead_nowhere(rows: Rows) -> None:
    rows[0]["first_sample_token"] = "nobody"


def make_a_circle(rows: Rows) -> None:
    rows[3]["next"] = rows[0]["token"]


def end_early(rows: Rows) -> None:
    rows[2]["next"] = ""


def name_twice(rows: Rows) -> None:
    rows.append({**rows[0], "channel": "CAM_BACK"})


@pytest.mark.parametrize(
    ("table", "edit", "sentence"),
    [
        (
            "sample",
            end_early,
            r"scene-0001: its chain of sample ends at row '\w+' after 3 samples, expected row '\w+' after 8",
        ),
        ("scene", lambda rows: rows[0].update(nbr_samples=9), "after 8 samples, expected row .* after 9"),
        ("scene", lambda rows: rows[0].update(nbr_samples=float("nan")), "nbr_samples: found nan, expected int"),
        (
            "scene",
            lambda rows: rows[0].update(last_sample_token="x"),
            "expected row 'x' after 8 by last_sample_token",
        ),
        ("scene", lambda rows: rows.append({**rows[0], "name": "scene-0500"}), "stands in an earlier row, too"),
        ("sensor", name_twice, r"table v1\.0-trainval/sensor\.json, row '\w+': .* stands in an earlier row, too"),
        ("sensor", lambda rows: rows[0].update(token=""), r"sensor\.json, row '': found an empty token"),
        ("sensor", lambda rows: rows.clear(), r"sensor\.json has no camera, expected channels such as CAM_FRONT"),
        ("scene", lead_nowhere, r"scene-0001: sample 'nobody' is not in the tables; fetch all tables"),
        ("sample", make_a_circle, r"scene-0001: row '.*' of the table sample comes twice"),
        ("sample_data", lambda rows: rows[0].pop("filename"), r"sample_data\.json, row '.*': filename: found nothing"),
        ("sample_data", lambda rows: rows[1].update(timestamp="1"), r"timestamp: found '1', expected int"),
        ("sample_data", lambda rows: rows[1].update(timestamp=0), r"frame 1 is of 0 us, not later than frame 0"),
        ("scene", lambda rows: rows[1].update(name="scene-0001"), r"two scenes named scene-0001"),
        (
            "scene",
            lambda rows: rows[1].update(log_token="x"),
            r"log_token: found 'x', which is no row of the table log",
        ),
        ("sample_data", lambda rows: rows.append([1]), r"found a list, expected an object"),
        ("sample_data", lambda rows: rows.append(rows[0]), r"stands in an earlier row, too"),
        ("sample_data", lambda rows: rows[1].update(sample_token=rows[0]["sample_token"]), r"stands in an earlier row"),
        ("sample", lambda rows: rows[7].update(next=rows[9]["token"]), r"chain of sample leads to .* another scene"),
        (
            "sample",
            lambda rows: rows.append(rows[0]),
            r"table v1\.0-trainval/sample\.json, row '.*stands in an earlier",
        ),
        ("sample_data", lambda rows: rows[1].update(filename=rows[0]["filename"]), r"is the picture of two frames"),
        ("scene", lambda rows: rows.clear(), r"scene\.json has no row"),
    ],
)
def test_tables_that_do_not_fit_name_the_row(
    copy: Path, table: str, edit: Callable[[Rows], Any], sentence: str
) -> None:
    change(copy, table, edit)
    with pytest.raises(BadData, match=sentence):
        opened(copy)


def test_a_chain_of_sweeps_that_ends_before_the_last_keyframe_is_named(copy: Path) -> None:
    change(copy, "sample_data", end_early)
    sentence = r"scene-0001: its chain of sample_data ends at row '\w+' without keyframe '\w+', expected one through"
    with pytest.raises(BadData, match=sentence):
        opened(copy, frames="sweeps")
    assert len(opened(copy, frames="keyframes").scenes["train/scene-0001"].files) == 8


def test_sweeps_are_refused_where_a_tree_has_none(copy: Path, tmp_path: Path) -> None:
    """Nothing trains on keyframes in their place."""
    with pytest.raises(BadConfig, match=r"^data\.frames: found 'sweeps', but table .*has only keyframes of CAM_FRONT"):
        opened(copy, frames="sweeps")
    write_example_tree(tmp_path / "with", ExampleTree(train=2, val=1, keyframes=3, size=(24, 40), sweeps=True))
    assert opened(tmp_path / "with", frames="sweeps").scenes
    shutil.rmtree(tmp_path / "with/sweeps")
    sentence = r"^data\.frames: found 'sweeps', but the tree has none of the \d+ pictures .*set data\.frames=keyframes"
    with pytest.raises(BadConfig, match=sentence):
        opened(tmp_path / "with", frames="sweeps")
    assert opened(tmp_path / "with").scenes


def test_sweeps_are_refused_of_a_tree_of_another_kind(copy: Path, tmp_path: Path) -> None:
    prepare(FolderTree(copy), {"dataset": "nuscenes", "image_size": [32, 48]}, tmp_path / "processed")
    with pytest.raises(BadConfig, match=r"data\.frames: found 'sweeps', which only trees of nuScenes have.*processed"):
        opened(tmp_path / "processed", frames="sweeps")


def test_a_table_that_is_missing_or_cut_off_is_named(copy: Path) -> None:
    path = copy / TABLES / "sample_data.json"
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(BadData, match=rf"file {TABLES}/sample_data\.json is no list of rows"):
        opened(copy)
    path.unlink()
    with pytest.raises(BadData, match=rf"file .*{TABLES}/sample_data\.json"):
        opened(copy)


def test_versions_cameras_and_trees_that_are_not_there_are_named(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=r"data\.version: found 'v1\.0-mini', but the tree has v1\.0-trainval"):
        opened(copy, version="v1.0-mini")
    with pytest.raises(BadConfig, match=r"data\.camera: found 'CAM_BACK', expected one of CAM_FRONT"):
        opened(copy, camera="CAM_BACK")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/readme.txt").write_text("x")
    with pytest.raises(BadData, match="expected nuScenes' tables"):
        opened(tmp_path / "other")


def test_scenes_without_all_pictures_are_left_out_with_the_reason(copy: Path) -> None:
    pictures = {name: sorted((copy / "samples/CAM_FRONT").glob(f"{name}__*")) for name in ("scene-0001", "scene-0002")}
    for path in (*pictures["scene-0001"], pictures["scene-0002"][3]):
        path.unlink()
    source = opened(copy)
    reasons = {verdict.route: verdict.reason for verdict in source.verdicts if not verdict.kept}
    assert reasons == {"train/scene-0001": "no_pictures", "train/scene-0002": "pictures_missing"}
    assert len(source.scenes) == 6


@pytest.mark.parametrize(("frame", "count"), [(5, 8), (1, 2), (1, 3)])
def test_a_scene_with_a_gap_in_time_is_left_out_with_the_reason(frame: int, count: int) -> None:
    files = tuple(f"{number}.jpg" for number in range(count))
    times = 500_000 * np.arange(count, dtype=np.int64)
    late = times + np.where(np.arange(count) >= frame, 10**15, 0)  # 31 years
    scenes = [Scene("even", "train", "", files, times), Scene("late", "train", "", files, late)]
    kept, verdicts = sorted_out(scenes, dict.fromkeys(files, 9))
    assert list(kept) == ["train/even"]
    assert [(verdict.route, verdict.reason) for verdict in verdicts] == [
        ("train/even", "kept"), ("train/late", "gap_in_time"),
    ]  # fmt: skip


def test_a_step_of_ten_medians_is_no_gap_and_a_longer_one_is() -> None:
    times = np.array([0, 10, 20, 120], np.int64)
    assert not has_gap(times) and has_gap(times + np.array([0, 0, 0, 1]))


def test_the_first_picture_that_is_not_there_is_named(copy: Path) -> None:
    change(copy, "sample_data", lambda rows: rows[0].update(filename="../../etc/pass\0wd"))
    with capture_logs() as logs:
        opened(copy)
    (warning,) = [entry for entry in logs if "picture" in entry]
    assert (warning["scenes"], warning["scene"]) == (1, "scene-0001")
    assert warning["picture"] == r"'../../etc/pass\x00wd'"


def test_an_unknown_scene_needs_a_seeded_split(copy: Path) -> None:
    change(copy, "scene", lambda rows: rows[0].update(name="mine"))
    (copy / "can_bus/scene-0001_vehicle_monitor.json").rename(copy / "can_bus/mine_vehicle_monitor.json")
    with pytest.raises(BadConfig, match=r"data\.split: found official, but scene mine is in no list"):
        opened(copy, split="official")
    for keys in ({}, {"split": "seeded", "split_seed": 3}):
        splits = [scene.split for scene in opened(copy, **keys).scenes.values()]
        assert sorted(splits) == ["train"] * 6 + ["val"] * 2


def message(**values: Any) -> dict[str, Any]:
    return {"utime": 0, "steering": 0.0, "throttle": 0, "brake": 0, "gear_position": 7, **values}


@pytest.mark.parametrize(
    ("messages", "sentence"),
    [
        ([], "found 0 messages, expected a list of two or more"),
        ([message()], "found 1 messages"),
        ({"a": 1}, "found a dict"),
        ([message(utime=5), message(utime=5)], "message 1: utime: found 5, not later than 5"),
        ([message(), message(utime=9, brake=float("nan"))], "message 1: brake: found nan, expected a finite number"),
        ([message(), message(utime=9, steering=10**400)], "message 1: steering"),
        ([message(), message(utime=9, steering=True)], "message 1: steering: found True"),
        ([message(), {"utime": 9}], "message 1: steering: found nothing"),
        ([message(), message(utime=9, throttle=1e9)], r"message 1: throttle: found 1e\+09, expected 0 to 1000; fetch"),
        ([message(), message(utime=9, throttle=-5)], "message 1: throttle: found -5, expected 0 to 1000"),
        ([message(), message(utime=9, brake=127)], "message 1: brake: found 127, expected 0 to 126"),
        ([message(), message(utime=9, steering=-781)], "message 1: steering: found -781, expected -780 to 780"),
        ([message(), message(utime=9, gear_position=99)], "message 1: gear_position: found 99, expected 0 to 15"),
        ([message(), 3], "message 1: found a int"),
        ([message(utime=-1), message()], "message 0: utime: found -1, expected microseconds"),
        (
            [message(utime=2_000_000), message(utime=3_000_000)],
            "are of 2000000 to 3000000 us, but the scene's pictures",
        ),
    ],
)
def test_messages_of_the_car_that_cannot_be_used_are_named(messages: Any, sentence: str) -> None:
    times = np.array([0, 1_000_000], np.int64)
    with pytest.raises(BadData, match=f"can_bus/x.json.*{sentence}"):
        can_actions(json.dumps(messages).encode(), "can_bus/x.json", times)


def png(depth: int, kind: int) -> bytes:
    """Returns a PNG of 20 x 20 pixels; kind 2 is RGB, 6 RGB with alpha."""
    row = b"\0" + bytes(20 * {2: 3, 6: 4}[kind] * depth // 8)
    header = struct.pack(">IIBBBBB", 20, 20, depth, kind, 0, 0, 0)
    chunks = {b"IHDR": header, b"IDAT": zlib.compress(row * 20), b"IEND": b""}
    packed = [
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks.items()
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def huge_jpeg() -> bytes:
    at = GOOD_JPEG.index(b"\xff\xc0") + 5
    return GOOD_JPEG[:at] + struct.pack(">HH", 30_000, 30_000) + GOOD_JPEG[at + 4 :]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (GOOD_JPEG[: len(GOOD_JPEG) // 2], "is no whole picture"),
        (b"", "neither JPEG nor PNG"),
        (huge_jpeg(), "30000 x 30000 pixels, expected at most"),
        (encoded(PICTURE[:1, :1]), "found 1 x 1 pixels, expected 16 or more"),
        (png(8, 6), "8 bits a channel with alpha, expected 8 bits, RGB"),
        (png(16, 2), "16 bits a channel, expected 8 bits, RGB"),
    ],
)
def test_pictures_that_are_cut_off_or_odd_are_named(data: bytes, sentence: str) -> None:
    with pytest.raises(BadData, match=f"file a/b.jpg.*{sentence}"):
        read_picture(data, "a/b.jpg")


def test_a_png_of_8_bits_and_a_jpeg_are_read_as_rgb() -> None:
    coded, data = cv2.imencode(".png", PICTURE[:, :, ::-1])
    assert coded and (read_picture(bytes(data), "x.png") == PICTURE).all()
    assert np.abs(read_picture(GOOD_JPEG, "x.jpg").astype(int) - PICTURE).mean() < 20


@pytest.fixture
def processed(example: Path, tmp_path: Path) -> Path:
    prepare(FolderTree(example), {"dataset": "nuscenes", "image_size": [32, 48]}, tmp_path / "out")
    return tmp_path / "out"


def npy(array: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def long_header(length: int) -> bytes:
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", length) + b" " * length


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (npy(np.zeros((6, 4), np.float32)), r"found float32 of shape \(6, 4\)"),
        (npy(np.zeros((7, 4))), r"found float64 of shape \(7, 4\)"),
        (
            npy(np.array([[None] * 4] * 7), allow_pickle=True),
            "cannot be read: it holds Python objects, expected numbers",
        ),
        (npy(np.full((7, 4), 2.0, np.float32)), r"row 0, column 0: found 2.0, expected a number in \[-1, 1\]"),
        (npy(np.full((7, 4), np.nan, np.float32)), "row 0, column 0: found nan"),
        (long_header(2_000_000), "cannot be read: its header has 2000000 bytes, expected at most 10000"),
        (b"\x93NUMPY\x03\x00" + bytes(20), r"cannot be read: it is of version \(3, 0\)"),
        (b"not an array", r"it is no \.npy file"),
        (npy(np.zeros((7, 4), np.float32))[:-9], "cannot be read"),
        (npy(np.zeros((7, 4), np.float32)).replace(b"(7, 4)", b"(7e9,)"), "cannot be read"),
    ],
)
def test_actions_of_another_kind_are_refused_with_what_they_are(data: bytes, sentence: str) -> None:
    with pytest.raises(BadData, match=rf"file t/a\.npy.*{sentence}"):
        read_actions(data, "t/a.npy", 7)


METADATA_FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"scene": "scene-0004"}, r"scene: found 'scene-0004', expected 'scene-0002', the folder's name"),
    ({"split": "val"}, r"split: found 'val', but the scene lies in train/"),
    ({"timestamps": [1, 2]}, r"timestamps: found 2 entries, expected 8 whole numbers"),
    ({"timestamps": None, "fps": 0}, r"fps: found 0\.0, expected 0\.001 to 1000"),
    ({"fps": float("nan")}, "fps: found nan, expected a finite number"),
    ({"fps": []}, r"fps: found \[\], expected int\|float"),
    ({"timestamps": None, "fps": None}, "fps: found None, expected int\\|float"),
    ({"action_source": "guess"}, r"action_source: found 'guess', expected can, poses or recorded"),
    ({"difficulty": float("nan")}, r"difficulty: found nan, expected a finite number"),
]


@pytest.mark.parametrize(("values", "sentence"), METADATA_FAULTS)
def test_metadata_that_contradict_the_folders_are_named(processed: Path, values: dict[str, Any], sentence: str) -> None:
    path = processed / "train/scene-0002" / METADATA
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    with pytest.raises(BadData, match=rf"file train/scene-0002/metadata\.json: {sentence}"):
        source = ProcessedTree(FolderTree(processed))
        scene = source.scenes["train/scene-0002"]
        source.actions(scene)
        source.difficulty(scene)


def test_a_scene_on_both_sides_or_with_a_gap_is_named(processed: Path) -> None:
    images = processed / "train/scene-0002/images"
    (images / "003.jpg").rename(images / "009.jpg")
    with pytest.raises(BadData, match=r"train/scene-0002/images has no picture 003, but later ones"):
        ProcessedTree(FolderTree(processed))
    (processed / "train/scene-0002").rename(processed / "train/scene-0003")
    with pytest.raises(BadData, match=r"scene scene-0003 is in train/ and in val/"):
        ProcessedTree(FolderTree(processed))


def test_actions_of_the_layout_must_fit_the_number_of_pictures(processed: Path) -> None:
    (processed / "train/scene-0002" / ACTIONS).write_bytes(npy(np.zeros((3, 4), np.float32)))
    source = ProcessedTree(FolderTree(processed))
    with pytest.raises(BadData, match=r"train/scene-0002/actions\.npy: found float32 of shape \(3, 4\), expected .*7"):
        source.actions(source.scenes["train/scene-0002"])
