"""LEAD's persistent cache: where the entry of a view lies, and what it holds, read without any of LEAD's code.

Beside `data/` LEAD keeps `cache/<Scenario>/<route>/`, below it twelve folders named by values of keys, and in the last
one `normal/<frame>.pkl` and `perturbated/<frame>.pkl`: xz pickles of one `CompressedSensorData` each. Once they are
made LEAD needs of the tree's own files the metas alone. (LEAD's session cache, of `diskcache`, is another thing.)
Facts: autonomousvision/lead, `lead/training/data_loader/carla_dataset_utils.py` and `config_training.py` (2025-12).
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lead_trainer.contract.raw_data import SourceFile
from lead_trainer.errors import BadData
from lead_trainer.recipes.lead.ingest.frame_files import RADAR_COLUMNS, decode_plane
from lead_trainer.recipes.lead.ingest.plain_pickle import read_plain
from lead_trainer.recipes.lead.ingest.plain_values import Budget, Name, Names, Refused, Unfinished, exactly
from lead_trainer.recipes.lead.ingest.stored_arrays import PLAIN
from lead_trainer.recipes.npz_arrays import npz_arrays

CACHE_FOLDER = "cache"
# What the twelve folders are named by; LEAD's keys, but the first two, which it derives from the cameras.
FOLDER_KEYS = (
    "image_width", "image_height", "min_x_meter", "max_x_meter", "min_y_meter", "max_y_meter", "detect_boxes",
    "use_depth", "use_semantic", "use_bev_semantic", "load_bev_3rd_person_images", "training_used_lidar_steps",
)  # fmt: skip
FIELDS = frozenset({
    "image", "lidar_bev", "semantic", "bev_semantic", "depth", "bboxes", "bboxes_waypoints", "bboxes_num_waypoints",
    "bev_occupancy", "bev_3rd_person_image", "radars", "radar_detections",
})  # fmt: skip

MAX_CLOUD_BYTES = 64 * 1024 * 1024  # of one radar of one entry, unpacked: some million points
Plane = npt.NDArray[Any]


class _SensorData(Unfinished):
    """What stands for an object of LEAD's class: it becomes the dict of its fields."""

    __slots__ = ()

    def finish(self, state: Any, budget: Budget) -> dict[str, Any]:
        if exactly(state, dict).keys() != FIELDS:
            raise Refused("its CompressedSensorData has other fields than LEAD's")
        return dict(state)


def _sensor_data(arguments: tuple[Any, ...], budget: Budget) -> _SensorData:
    if arguments:
        raise Refused("its CompressedSensorData is made of something")
    return _SensorData()


_NAMES: Names = {
    **PLAIN,
    ("lead.training.data_loader.carla_dataset_utils", "CompressedSensorData"): Name(
        "LEAD's CompressedSensorData", _sensor_data
    ),
}


@dataclass(frozen=True)
class CachedView:
    """What LEAD keeps of one view of one frame; a method raises BadData that names the file and the field."""

    path: str
    held: Mapping[str, Any]

    @classmethod
    def read(cls, data: bytes, path: str) -> "CachedView":
        """Reads an entry; raises BadData naming it unless it is a CompressedSensorData of plain values."""
        held = read_plain(data, path, _NAMES)
        if type(held) is not dict or held.keys() != FIELDS:
            raise BadData(f"file {path} is no entry of LEAD's persistent cache")
        return cls(path, held)

    def picture(self) -> bytes:
        """Returns the JPEG as recorded."""
        return self._bytes("image")

    def plane(self, field: str) -> Plane:
        """Returns a label plane as an array."""
        return decode_plane(self._bytes(field), f"{self.path}, field {field},")

    def boxes(self, shape: tuple[int, int]) -> npt.NDArray[np.float32]:
        """Returns the box rows."""
        rows = self.held["bboxes"]
        if type(rows) is not np.ndarray or rows.dtype != np.float32 or rows.shape != shape:
            raise self._corrupt("bboxes")
        return rows

    def clouds(self, sensors: int) -> list[npt.NDArray[np.float16]]:
        """Returns the points of each radar."""
        packed = self.held["radars"]
        if type(packed) is not tuple or len(packed) < sensors:
            raise self._corrupt("radars")
        return [self._cloud(one) for one in packed[:sensors]]

    def _cloud(self, data: Any) -> npt.NDArray[np.float16]:
        try:
            with npz_arrays(exactly(data, bytes), MAX_CLOUD_BYTES) as stored:
                cloud = np.asarray(stored["arr"], np.float16)
        except ValueError as error:
            raise self._corrupt("radars", str(error)) from error
        if cloud.ndim != 2 or cloud.shape[1] != RADAR_COLUMNS:
            raise self._corrupt("radars", f"a radar has shape {cloud.shape}")
        return cloud

    def _bytes(self, field: str) -> bytes:
        value = self.held[field]
        if type(value) is np.ndarray and value.dtype == np.uint8:
            return value.tobytes()
        if type(value) is not bytes:
            raise self._corrupt(field)
        return value

    def _corrupt(self, field: str, why: str = "") -> BadData:
        found = why or f"found a {type(self.held[field]).__name__}"
        return BadData(f"file {self.path} holds no valid {field}: {found}")


def view_path(folder: str, view: str, frame: int) -> str:
    """Returns the path of one entry; `folder` is one of `folders_of`."""
    return f"{folder}/{view}/{frame:04d}.pkl"


def is_listed(files: Sequence[SourceFile], path: str) -> bool:
    """Returns whether a sorted listing has a path."""
    at = bisect_left(files, path, key=_path)
    return at < len(files) and files[at].path == path


def folders_of(files: Sequence[SourceFile], route: str) -> Iterator[str]:
    """Yields the last of the twelve folders of each setting with which LEAD has kept a route."""
    below = f"{CACHE_FOLDER}/{route.partition('/')[2]}/"
    depth = below.count("/") + len(FOLDER_KEYS)
    at = bisect_left(files, below, key=_path)
    while at < len(files) and files[at].path.startswith(below):
        folder = "/".join(files[at].path.split("/")[:depth])
        if files[at].path.count("/") == depth + 1:
            yield folder
        at = bisect_left(files, f"{folder}0", lo=at, key=_path)  # 0 is what follows /


def _path(file: SourceFile) -> str:
    return file.path
