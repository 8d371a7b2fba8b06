"""LEAD's persistent cache as LEAD writes it: xz pickles of objects of its class, in folders named by its keys' values.

Facts of the format: `golden/lead_data/cache.json` of the shared folder. What the objects hold is the test's to say.
"""

import io
import lzma
import pickle
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from lead_trainer.contract.raw_data import SampleKey, SourceTree
from lead_trainer.data.array_block import unpack_arrays
from lead_trainer.recipes.lead.ingest.frame_files import decode_plane
from lead_trainer.recipes.lead.preparation import LeadPreparation
from lead_trainer.recipes.lead.targets.label_classes import MAP_CLASSES

MODULE = "lead.training.data_loader.carla_dataset_utils"
FOLDERS = "1152/384/-32/64/-40/40/True/True/True/True/False/10"
VIEWS = {"normal": "", "perturbated": "_perturbated"}
Array = npt.NDArray[Any]


class CompressedSensorData:
    """Has the fields of LEAD's class, and its name."""

    def __init__(self, **fields: Any) -> None:
        vars(self).update(fields)


CompressedSensorData.__module__ = MODULE


@contextmanager
def modules_of(*classes: type) -> Iterator[None]:
    """Lets pickle find classes in the modules that they say they are of, and takes the modules away again."""
    names = {".".join(kind.__module__.split(".")[:end]) for kind in classes for end in range(1, 9)} - sys.modules.keys()
    sys.modules.update({name: ModuleType(name) for name in names})
    try:
        for kind in classes:
            setattr(sys.modules[kind.__module__], kind.__name__, kind)
        yield
    finally:
        for name in names:
            del sys.modules[name]


def entry_bytes(entry: Any) -> bytes:
    """Returns the file of an entry."""
    with modules_of(CompressedSensorData):
        return lzma.compress(pickle.dumps(entry, protocol=4), preset=0)


def png(plane: Array) -> npt.NDArray[np.uint8]:
    """Returns a plane as OpenCV's PNG, in the array that LEAD keeps."""
    good, data = cv2.imencode(".png", plane)
    assert good
    return np.asarray(data)


def leads_depth(codes: Array) -> npt.NDArray[np.uint8]:
    """Returns depth codes as LEAD keeps them: metres in float32, at most 50, truncated to 8 bits."""
    metres = (
        codes.astype(np.float32) / np.float32(255) * np.float32(50)
        if codes.dtype == np.uint8
        else (codes.astype(np.float32) / 65535 * 96)
    )
    return (np.clip(metres, 0, 50) / 50 * 255).astype(np.uint8)


def packed_radars(tree: SourceTree, route: str, suffix: str, frame: int) -> tuple[bytes, ...]:
    """Returns the recorded radars, each in an archive of its own."""
    with np.load(io.BytesIO(tree.read(f"{route}/radar{suffix}/{frame:04d}.npz"))) as stored:
        clouds = [stored[f"radar{number}"] for number in (1, 2, 3, 4)]
    packed = []
    for cloud in clouds:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, arr=cloud.astype(np.float16))
        packed.append(buffer.getvalue())
    return tuple(packed)


def entry_of(tree: SourceTree, route: str, suffix: str, frame: int, **measured: Array) -> CompressedSensorData:
    """Returns an entry of recorded files with the arrays that LEAD computed of them: lidar_bev, bev_semantic,
    bev_occupancy and depth unpacked, and bboxes."""
    planes = {name: png(measured[name]) for name in ("lidar_bev", "bev_semantic", "bev_occupancy", "depth")}
    semantic = tree.read(f"{route}/semantics{suffix}/{frame:04d}.png")
    return CompressedSensorData(
        image=tree.read(f"{route}/rgb{suffix}/{frame:04d}.jpg"),
        semantic=png(decode_plane(semantic, "semantics")),
        **planes,
        bboxes=measured["bboxes"],
        bboxes_waypoints=np.zeros((90, 8, 2), np.float32),
        bboxes_num_waypoints=np.zeros(90, np.int32),
        bev_3rd_person_image=None,
        radars=packed_radars(tree, route, suffix, frame),
        radar_detections=np.zeros((20, 4), np.float32),
    )


def write_cache(tree: SourceTree, root: Path, keys: list[SampleKey]) -> None:
    """Writes the entries of both views of some frames below `root`, as LEAD would from a tree with default keys."""
    preparation = LeadPreparation()
    config = preparation.config_keys({})
    for key in keys:
        record = preparation.record(tree, config, key)
        for view, suffix in VIEWS.items():
            file = root / "cache" / key.route.removeprefix("data/") / FOLDERS / view / f"{key.frame:04d}.pkl"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(entry_bytes(_entry(tree, key, view, suffix, record)))


def _entry(
    tree: SourceTree, key: SampleKey, view: str, suffix: str, record: Mapping[str, bytes]
) -> CompressedSensorData:
    planes = unpack_arrays(memoryview(record[f"{view}/planes"]), compressed=True)
    arrays = unpack_arrays(memoryview(record[f"{view}/arrays"]), compressed=False)
    hdmap = decode_plane(tree.read(f"{key.route}/hdmap{suffix}/{key.frame:04d}.png"), "hdmap")
    occupancy = np.zeros((1024, 1024), np.uint8)
    occupancy[352:672, 384:768] = planes["occupancy"]
    return entry_of(
        tree, key.route, suffix, key.frame,
        lidar_bev=(planes["lidar"].astype(np.float32) / 5 * 65535).astype(np.uint16),
        bev_semantic=np.array(MAP_CLASSES, np.uint8)[hdmap],
        bev_occupancy=occupancy,
        depth=leads_depth(planes["depth"]),
        bboxes=arrays["boxes"],
    )  # fmt: skip
