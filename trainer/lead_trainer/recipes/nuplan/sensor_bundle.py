"""SensorBundle, version 1: what the sensors saw at one sweep, where they were, and the labels.

Built of a raw tree by `targets.bundles`, kept in a cache's records by `bundle_record`, or in an NPZ file. A reader
refuses what is not exactly of this form, by the field's name. Frames and units: see `FIELDS`; the vehicle's frame is
that of the sweep, its origin the rear axle, x ahead, y to the left, z up.
"""

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from lead_trainer.data.raw_json import raw_json
from lead_trainer.errors import BadData
from lead_trainer.recipes.npz_arrays import npz_arrays
from lead_trainer.recipes.nuplan.data_keys import LAYERS, TASKS

VERSION = 1
MAX_NPZ_BYTES = 256 * 1024 * 1024  # of one bundle, unpacked
Array = npt.NDArray[Any]
Jpeg = bytes | memoryview

# Type and shape of each array: a number is that length, a letter the same length wherever it stands.
FIELDS: Mapping[str, tuple[str, tuple[int | str, ...]]] = {
    "intrinsics": ("float32", ("C", 3, 3)),  # pixels, of the undistorted pictures
    "distortion": ("float32", ("C", 5)),  # that the pictures still have: zeros
    "camera_to_vehicle": ("float32", ("C", 4, 4)),  # at the picture's time
    "picture_to_sweep": ("float32", ("C", 4, 4)),  # the vehicle's frame at the picture's time to that at the sweep's
    "lidar_to_vehicle": ("float32", (4, 4)),
    "points": ("float32", ("P", 5)),  # x, y, z (m) in the vehicle's frame, intensity [0, 1], ring
    "ego_pose": ("float64", (7,)),  # x, y, z (m, UTM), w, x, y, z of its rotation's quaternion, as qw, qx, qy, qz
    "ego_state": ("float32", (4,)),  # vx, vy (m/s), ax, ay (m/s²) in the vehicle's frame
    "ego_future": ("float32", ("T", 4)),  # x, y (m), yaw (rad), speed (m/s)
    "ego_future_valid": ("bool", ("T",)),
    "boxes": ("float32", ("A", 7)),  # x, y, length, width (m), yaw (rad), vx, vy (m/s over ground)
    "box_class": ("int64", ("A",)),  # of data_keys.CLASSES
    "futures": ("float32", ("A", "T", 4)),  # like ego_future
    "future_valid": ("bool", ("A", "T")),
    "layers": ("uint8", (len(LAYERS), "G", "G")),  # 0 or 1
    "occupied": ("uint8", ("G", "G")),
    "known": ("uint8", ("G", "G")),
    "labelled": ("bool", (len(TASKS),)),
}
_TEXTS = ("log", "token", "city")


@dataclass(frozen=True, eq=False)
class SensorBundle:
    """One sweep; arrays as in `FIELDS`."""

    timestamp: int  # us
    log: str
    token: str
    city: str
    drop_flags: tuple[str, ...]  # what this sweep lacks: segmentation, points
    channels: tuple[str, ...]
    images: tuple[Jpeg, ...]  # JPEGs by channel, undistorted and resized, of one size
    image_size: tuple[int, int]  # height, width
    intrinsics: Array
    distortion: Array
    camera_to_vehicle: Array
    picture_to_sweep: Array
    lidar_to_vehicle: Array
    points: Array
    ego_pose: Array
    ego_state: Array
    ego_future: Array
    ego_future_valid: Array
    boxes: Array
    box_class: Array
    futures: Array
    future_valid: Array
    layers: Array
    occupied: Array
    known: Array
    labelled: Array

    @property
    def calibration(self) -> str:
        """The hash of lenses, mounts and picture size."""
        return calibration_hash(self.intrinsics, self.camera_to_vehicle, self.image_size)

    def arrays(self) -> dict[str, Array]:
        """Returns the arrays by name."""
        return {name: getattr(self, name) for name in FIELDS}

    def meta(self) -> dict[str, Any]:
        """Returns everything that is no array and no picture."""
        return {
            "version": VERSION,
            "timestamp": self.timestamp,
            **{name: getattr(self, name) for name in _TEXTS},
            "drop_flags": list(self.drop_flags),
            "channels": list(self.channels),
            "image_size": list(self.image_size),
            "calibration": self.calibration,
        }


def calibration_hash(intrinsics: Array, camera_to_vehicle: Array, image_size: Sequence[int]) -> str:
    """Returns 16 hex digits that stand for lenses, mounts and the pictures' (height, width)."""
    whole = hashlib.sha256(np.ascontiguousarray(intrinsics, np.float32).tobytes())
    whole.update(np.ascontiguousarray(camera_to_vehicle, np.float32).tobytes())
    whole.update(np.array(image_size, np.int64).tobytes())
    return whole.hexdigest()[:16]


def bundle_of(where: str, meta: Mapping[str, Any], arrays: Mapping[str, Array], images: Sequence[Jpeg]) -> SensorBundle:
    """Returns the bundle of its parts; raises BadData by `where` naming the first field that is not of form."""
    _check_meta(where, meta)
    channels = meta["channels"]
    sizes: dict[str, int] = {"C": len(channels)}
    for name, (kind, shape) in FIELDS.items():
        if name not in arrays:
            raise BadData(f"{where}: field {name} is missing; write the bundle again")
        _check_array(where, name, arrays[name], kind, shape, sizes)
    extra = sorted(set(arrays) - set(FIELDS))
    if extra:
        raise BadData(f"{where}: field {extra[0]} is none of SensorBundle {VERSION}; write the bundle again")
    if len(images) != len(channels) or any(bytes(image[:2]) != b"\xff\xd8" for image in images):
        raise BadData(f"{where}: images: found {len(images)}, expected a JPEG for each of {', '.join(channels)}")
    whole: dict[str, Any] = {name: meta[name] for name in ("timestamp", *_TEXTS)}
    whole |= {name: arrays[name] for name in FIELDS}
    bundle = SensorBundle(
        drop_flags=tuple(meta["drop_flags"]),
        channels=tuple(channels),
        images=tuple(images),
        image_size=(int(meta["image_size"][0]), int(meta["image_size"][1])),
        **whole,
    )
    if meta["calibration"] != bundle.calibration:
        raise BadData(
            f"{where}: calibration: found {meta['calibration']!r}, expected {bundle.calibration!r} by intrinsics and "
            "camera_to_vehicle; write the bundle again"
        )
    return bundle


def write_npz(bundle: SensorBundle) -> bytes:
    """Returns the bundle as an NPZ file."""
    pictures = {
        f"image_{channel}": np.frombuffer(image, np.uint8)
        for channel, image in zip(bundle.channels, bundle.images, strict=True)
    }
    meta = np.frombuffer(json.dumps(bundle.meta(), sort_keys=True).encode(), np.uint8)
    sink = io.BytesIO()
    np.savez(sink, allow_pickle=False, meta=meta, **pictures, **bundle.arrays())
    return sink.getvalue()


def read_npz(data: bytes, path: str) -> SensorBundle:
    """Returns the bundle in an NPZ file; raises BadData naming file and field for any other form."""
    try:
        with npz_arrays(data, MAX_NPZ_BYTES) as stored:
            arrays = {name: stored[name] for name in stored.files}
        meta = raw_json(np.asarray(arrays.pop("meta", np.empty(0, np.uint8)), np.uint8).tobytes())
    except ValueError as error:
        raise BadData(f"file {path}: is no NPZ file of a SensorBundle: {error}; write the bundle again") from error
    where = f"file {path}"
    _check_meta(where, meta)
    images = []
    for channel in meta["channels"]:
        image = arrays.pop(f"image_{channel}", None)
        if image is None or image.dtype != np.uint8 or image.ndim != 1:
            raise BadData(f"{where}: field image_{channel}: expected the bytes of a JPEG; write the bundle again")
        images.append(image.tobytes())
    return bundle_of(where, meta, arrays, images)


def _check_meta(where: str, meta: Any) -> None:
    """Raises BadData unless the meta data are those of this version."""
    if not isinstance(meta, Mapping) or meta.get("version") != VERSION:
        found = meta.get("version") if isinstance(meta, Mapping) else type(meta).__name__
        raise BadData(f"{where}: version: found {found!r}, expected {VERSION}; write the bundle again")
    texts = [name for name in (*_TEXTS, "calibration") if not isinstance(meta.get(name), str)]
    lists = [name for name in ("drop_flags", "channels", "image_size") if not isinstance(meta.get(name), list)]
    numbers = [] if type(meta.get("timestamp")) is int else ["timestamp"]
    for name in (*texts, *lists, *numbers):
        raise BadData(f"{where}: {name}: found {meta.get(name)!r}; write the bundle again")
    size = meta["image_size"]
    if len(size) != 2 or not all(type(side) is int and side > 0 for side in size):
        raise BadData(f"{where}: image_size: found {size!r}, expected [height, width]; write the bundle again")
    channels = meta["channels"]
    if not channels or len(set(map(str, channels))) < len(channels) or not all(type(name) is str for name in channels):
        raise BadData(f"{where}: channels: found {channels!r}, expected names, each once; write the bundle again")


def _check_array(
    where: str, name: str, array: Any, kind: str, shape: Sequence[int | str], sizes: dict[str, int]
) -> None:
    """Raises BadData unless an array has the type and shape of its field; `sizes` are the lengths known so far."""
    known = dict(sizes)
    fits = isinstance(array, np.ndarray) and array.dtype == np.dtype(kind) and array.ndim == len(shape)
    if fits:
        for side, length in zip(shape, array.shape, strict=True):
            expected = side if isinstance(side, int) else sizes.setdefault(side, length)
            fits = fits and expected == length
    if not fits:
        found = f"{getattr(array, 'dtype', type(array).__name__)} {list(getattr(array, 'shape', []))}"
        wanted = f"{kind} [{', '.join(str(known.get(str(side), side)) for side in shape)}]"
        raise BadData(f"{where}: field {name}: found {found}, expected {wanted}; write the bundle again")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise BadData(f"{where}: field {name}: found a number that is not finite; write the bundle again")


assert {field.name for field in fields(SensorBundle)} >= FIELDS.keys()
