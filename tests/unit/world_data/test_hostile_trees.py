"""A tree made to do harm: names that are paths, files that fill a pod, links that lead out. Nothing is written."""

import io
import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from lead_trainer.contract.raw_data import SourceFile
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.errors import BadData
from lead_trainer.recipes.world.ingest.pictures import read_picture
from lead_trainer.recipes.world.ingest.processed_tree import ProcessedTree, read_actions
from lead_trainer.recipes.world.ingest.scenes import MAX_JSON_BYTES, MAX_PICTURE_BYTES
from lead_trainer.recipes.world.ingest.sources import open_source
from lead_trainer.recipes.world.prepare_dataset import prepare
from lead_trainer.recipes.world.prepare_keys import WorldKeys, data_keys_of

TABLES = "v1.0-trainval"
SECTION = {"dataset": "nuscenes", "image_size": [32, 48]}
KEYS = WorldKeys.of(data_keys_of({"data": SECTION}))
CAN = "can_bus/scene-0001_vehicle_monitor.json"


def edited(root: Path, table: str, **values: Any) -> None:
    path = root / TABLES / f"{table}.json"
    rows = json.loads(path.read_text())
    rows[0].update(values)
    path.write_text(json.dumps(rows))


@pytest.mark.parametrize(
    "name", ["../../evil", "..", ".unfinished", "a/b", "a\\b", "a\0b", "", "\ud800", "x" * 201, "a\nb", "/evil"]
)
def test_a_scene_whose_name_is_a_path_is_refused_before_anything_is_written(
    copy: Path, tmp_path: Path, name: str
) -> None:
    edited(copy, "scene", name=name)
    before = set(tmp_path.rglob("*"))
    with pytest.raises(BadData, match=r"^scene '.*expected a name such as scene-0061"):
        prepare(FolderTree(copy), SECTION, tmp_path / "out")
    assert set(tmp_path.rglob("*")) - before <= {tmp_path / "out", tmp_path / "out/prepared.json"}


@pytest.mark.parametrize("place", ["\ud800", "a\0b", "x" * 201])
def test_a_place_that_cannot_be_shown_is_refused(copy: Path, place: str) -> None:
    edited(copy, "log", location=place)
    with pytest.raises(BadData, match=r"scene scene-0001: location: found '.*expected at most 200"):
        open_source(FolderTree(copy), KEYS)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../../../etc/passwd", "bad_picture_name"),
        ("/etc/passwd", "bad_picture_name"),
        ("samples/\0", "bad_picture_name"),
        ("samples/CAM_FRONT/a\nb.jpg", "bad_picture_name"),
        ("samples\\CAM_FRONT\\a.jpg", "bad_picture_name"),
        ("", "bad_picture_name"),
        ("samples/CAM_FRONT", "pictures_missing"),
        ("samples/CAM_FRONT/none.jpg", "pictures_missing"),
    ],
)
def test_a_picture_that_is_no_file_of_the_tree_leaves_its_scene_out_with_the_reason(
    copy: Path, path: str, reason: str
) -> None:
    edited(copy, "sample_data", filename=path)
    found = {verdict.route: verdict.reason for verdict in open_source(FolderTree(copy), KEYS).verdicts}
    assert found["train/scene-0001"] == reason


def test_a_link_out_of_a_pods_tree_is_refused_by_name(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("[]")
    (copy / CAN).unlink()
    (copy / CAN).symlink_to(tmp_path / "secret")
    with pytest.raises(BadData, match="scene-0001_vehicle_monitor"):
        tree = FolderTree(copy)
        source = open_source(tree, KEYS)
        source.actions(source.scenes["train/scene-0001"])


class Swollen:
    """A tree in which one file is listed with more bytes than it has: nothing of it may be read."""

    def __init__(self, tree: FolderTree, path: str, size: int) -> None:
        self._tree, self._path, self._size = tree, path, size

    def files(self) -> list[SourceFile]:
        return [replace(file, size=self._size if file.path == self._path else file.size) for file in self._tree.files()]

    def read(self, path: str) -> bytes:
        assert path != self._path
        return self._tree.read(path)


def test_files_that_would_fill_a_pod_are_refused_unread(copy: Path, tmp_path: Path) -> None:
    picture = next(file.path for file in FolderTree(copy).files() if "scene-0001__" in file.path)
    with pytest.raises(BadData, match=rf"file {picture} has {MAX_PICTURE_BYTES + 1} bytes, expected at most"):
        open_source(Swollen(FolderTree(copy), picture, MAX_PICTURE_BYTES + 1), KEYS)
    source = open_source(Swollen(FolderTree(copy), CAN, 1 << 30), KEYS)
    with pytest.raises(BadData, match=rf"file {CAN} has 1073741824 bytes, expected at most {MAX_JSON_BYTES}"):
        source.actions(source.scenes["train/scene-0001"])
    prepare(FolderTree(copy), SECTION, tmp_path / "out")
    processed = FolderTree(tmp_path / "out")
    with pytest.raises(BadData, match=r"file train/scene-0001/metadata\.json has 1073741824 bytes"):
        ProcessedTree(Swollen(processed, "train/scene-0001/metadata.json", 1 << 30))
    made = ProcessedTree(Swollen(processed, "train/scene-0001/actions.npy", 1 << 30))
    with pytest.raises(BadData, match=r"file train/scene-0001/actions\.npy has 1073741824 bytes"):
        made.actions(made.scenes["train/scene-0001"])


def headers() -> Iterator[tuple[str, bytes]]:
    """Yields `.npy` files whose headers claim what they do not have."""
    body = bytes(7 * 4 * 4)
    for name, header in {
        "two trillion rows": "{'descr': '<f4', 'fortran_order': False, 'shape': (2000000000000, 4), }",
        "negative rows": "{'descr': '<f4', 'fortran_order': False, 'shape': (-7, 4), }",
        "deep": "{'descr': '<f4', 'fortran_order': False, 'shape': " + "(" * 5000 + ")" * 5000 + ", }",
        "an expression": "__import__('os').system('true')",
        "records": "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (7, 4), }",
        "objects": "{'descr': '|O', 'fortran_order': False, 'shape': (7, 4), }",
    }.items():
        data = header.encode().ljust(118) + b"\n"
        yield name, b"\x93NUMPY\x02\x00" + struct.pack("<I", len(data)) + data + body
    yield "a header of four gigabytes", b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + body


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in headers()])
def test_an_array_whose_header_lies_is_refused(data: bytes) -> None:
    with pytest.raises(BadData, match=r"file t/a\.npy"):
        read_actions(data, "t/a.npy", 7)


def test_an_array_in_the_order_of_fortran_has_the_same_rows() -> None:
    values, file = np.arange(28, dtype=np.float32).reshape(7, 4) / 28, io.BytesIO()
    np.save(file, np.asfortranarray(values))
    assert (read_actions(file.getvalue(), "a.npy", 7) == values).all()


def test_a_small_file_that_unpacks_to_a_large_picture_is_refused() -> None:
    coded, data = cv2.imencode(".png", np.zeros((5000, 5000, 3), np.uint8))
    assert coded and len(data) < 200_000
    with pytest.raises(BadData, match=r"file a\.png .*5000 x 5000 pixels, expected at most"):
        read_picture(bytes(data), "a.png")


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '[{"token":' + "[" * 100_000, '[{"token":' + "9" * 5000 + "}]", "\ufeff[]", '[{"token":"x"']
)
def test_a_table_that_is_deep_or_cut_off_is_one_sentence(copy: Path, text: str) -> None:
    (copy / TABLES / "scene.json").write_text(text, encoding="utf-8")
    with pytest.raises(BadData, match=rf"file {TABLES}/scene\.json is no list of rows: "):
        open_source(FolderTree(copy), KEYS)
