"""A SensorBundle in a cache: its pictures, points and labels in the record, what a whole log shares in the metas."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from lead_trainer.contract.preparation import Fields
from lead_trainer.data.array_block import pack_arrays, unpack_arrays
from lead_trainer.errors import BadData
from lead_trainer.recipes.nuplan.sensor_bundle import FIELDS, VERSION, Array, SensorBundle, bundle_of

PICTURE, POINTS, LABELS = "image_", "points", "labels"  # fields; pictures have their channel behind it
OF_THE_LOG = ("intrinsics", "distortion", "camera_to_vehicle", "lidar_to_vehicle")


def to_record(bundle: SensorBundle) -> Fields:
    """Returns the record's fields."""
    arrays = {name: array for name, array in bundle.arrays().items() if name not in OF_THE_LOG}
    points = arrays.pop("points")
    small = {name: array.astype(np.uint8) if array.dtype == np.bool_ else array for name, array in arrays.items()}
    return {
        **{PICTURE + name: bytes(image) for name, image in zip(bundle.channels, bundle.images, strict=True)},
        POINTS: pack_arrays({POINTS: points}, compress=False),
        LABELS: pack_arrays(small, compress=True),
    }


def rig_text(rig: Mapping[str, Array]) -> str:
    """Returns lenses and mounts of a log as JSON; float32 numbers come back as they were."""
    return json.dumps({name: rig[name].tolist() for name in OF_THE_LOG})


def rig_arrays(text: str) -> dict[str, Array]:
    """Returns what `rig_text` was given."""
    return {name: np.array(values, np.float32) for name, values in json.loads(text).items()}


def from_record(record: Mapping[str, memoryview], meta: Mapping[str, Any], rig: Mapping[str, Array]) -> SensorBundle:
    """Returns the bundle of a record; `meta` is its row of the metas, `rig` of the log.

    Raises BadData where the record is of another form.
    """
    where = f"record of sweep {meta['token']}"
    missing = [name for name in (POINTS, LABELS) if name not in record]
    if missing:
        raise BadData(f"{where}: field {missing[0]} is missing; build the cache again")
    stored = {**unpack_arrays(record[LABELS], compressed=True), **unpack_arrays(record[POINTS], compressed=False)}
    arrays = {
        name: array.astype(np.bool_) if FIELDS.get(name, ("",))[0] == "bool" else array
        for name, array in stored.items()
    }
    channels = [str(name) for name in meta["channels"].split()]
    lacking = [name for name in channels if PICTURE + name not in record]
    if lacking:
        raise BadData(f"{where}: field {PICTURE}{lacking[0]} is missing; build the cache again")
    drops = [*str(meta["drop_flags"]).split(), *([] if len(arrays[POINTS]) else [POINTS])]
    whole = {
        "version": VERSION,
        **{name: meta[name] for name in ("timestamp", "log", "token", "city", "calibration")},
        "drop_flags": drops,
        "channels": channels,
        "image_size": [int(side) for side in str(meta["image_size"]).split()],
    }
    return bundle_of(where, whole, {**arrays, **rig}, [record[PICTURE + name] for name in channels])
