"""An Argoverse 2 sensor log as a scenario: its cuboids, carried to the city's frame, are tracks at 10 Hz.

Reads `annotations.feather` (cuboids in the vehicle's frame at the sweeps' times) and `city_SE3_egovehicle.feather`
(the vehicle's pose at these times); fields by the user guide of argoverse/av2-api. A log has no focal track, so it
serves the windows collections. Shapes: A tracks, S steps, R rows.
"""

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.spatial.transform import Rotation

from lead_trainer.errors import BadData
from lead_trainer.recipes.distill.benchmarks.argoverse2.bounded_table import (
    OverLimit,
    feather_columns,
    refuse_many_states,
)
from lead_trainer.recipes.distill.benchmarks.argoverse2.scenario import OBJECT_TYPES, STEP_SECONDS, Scenario

UNSCORED = 1
_POSE = {"timestamp_ns": pa.int64(), **dict.fromkeys(("qw", "qx", "qy", "qz", "tx_m", "ty_m", "tz_m"), pa.float64())}
_CUBOID = {**_POSE, "track_uuid": pa.string(), "category": pa.string()}
_LEAST_NORM = 0.5  # of a quaternion, whose norm is one
# The sensor data set's categories under the forecasting data set's types; the rest is `unknown`.
_TYPES = {"REGULAR_VEHICLE": "vehicle", "LARGE_VEHICLE": "vehicle", "BOX_TRUCK": "vehicle", "TRUCK": "vehicle",
          "TRUCK_CAB": "vehicle", "VEHICULAR_TRAILER": "vehicle", "BUS": "bus", "SCHOOL_BUS": "bus",
          "ARTICULATED_BUS": "bus", "PEDESTRIAN": "pedestrian", "OFFICIAL_SIGNALER": "pedestrian",
          "BICYCLIST": "cyclist", "MOTORCYCLIST": "motorcyclist", "BICYCLE": "riderless_bicycle",
          "BOLLARD": "static", "SIGN": "static", "STOP_SIGN": "static", "CONSTRUCTION_CONE": "construction",
          "CONSTRUCTION_BARREL": "construction"}  # fmt: skip

Array = npt.NDArray[Any]


def read_sensor_log(annotations: bytes, poses: bytes, path: str) -> Scenario:
    """Returns a log's tracks; raises BadData naming the folder and what does not fit."""
    cuboids, ego = _columns(annotations, _CUBOID, path), _columns(poses, _POSE, path)
    if not len(cuboids["category"]) or not len(ego["timestamp_ns"]):
        raise BadData(f"log {path} has no annotations or no poses; fetch it again")
    times, step_R = np.unique(cuboids["timestamp_ns"], return_inverse=True)
    at = np.searchsorted(ego["timestamp_ns"], times)
    found = (at < len(ego["timestamp_ns"])) & (
        ego["timestamp_ns"][np.minimum(at, len(ego["timestamp_ns"]) - 1)] == times
    )
    if not found.all():
        raise BadData(f"log {path}: no pose at {(~found).sum()} of {len(times)} annotated times; fetch it again")
    city_from_ego = Rotation.from_quat(_quaternions(ego)[at])[step_R]
    centre = city_from_ego.apply(_positions(cuboids)) + _positions(ego)[at][step_R]
    ahead = (city_from_ego * Rotation.from_quat(_quaternions(cuboids))).apply(np.array([1.0, 0.0, 0.0]))
    ids, first, row_R = np.unique(cuboids["track_uuid"].astype(str), return_index=True, return_inverse=True)
    try:
        refuse_many_states(len(ids), len(times))
    except OverLimit as error:
        raise BadData(f"log {path}: {error}; fetch it again") from error
    xy, heading = np.full((len(ids), len(times), 2), np.nan), np.full((len(ids), len(times)), np.nan)
    xy[row_R, step_R], heading[row_R, step_R] = centre[:, :2], np.arctan2(ahead[:, 1], ahead[:, 0])
    names = [_TYPES.get(category, "unknown") for category in cuboids["category"][first]]
    return Scenario(
        name=path.rsplit("/", 1)[-1],
        city="",
        focal="",
        track_ids=tuple(str(name) for name in ids),
        types=np.array([OBJECT_TYPES.index(name) for name in names], np.uint8),
        categories=np.full(len(ids), UNSCORED, np.int64),
        xy=xy,
        heading=heading,
        velocity=_velocities(xy),
    )


def _velocities(xy_AS2: Array) -> Array:
    """Returns the velocity from the step before, or to the step after where there is none before."""
    velocity = np.full_like(xy_AS2, np.nan)
    velocity[:, 1:] = np.diff(xy_AS2, axis=1) / STEP_SECONDS
    after = np.roll(velocity, -1, axis=1)
    after[:, -1] = np.nan
    return np.where(np.isnan(velocity), after, velocity)


def _columns(data: bytes, kinds: Mapping[str, pa.DataType], path: str) -> dict[str, Array]:
    try:
        table = feather_columns(data, list(kinds))
        columns = {name: table[name].cast(kind).to_numpy() for name, kind in kinds.items()}
    except (pa.ArrowException, OSError, ValueError, struct.error) as error:
        raise BadData(f"log {path} has a feather file without the columns {', '.join(kinds)}: {error}") from error
    norms = np.linalg.norm(_quaternions(columns), axis=1)
    if not (norms > _LEAST_NORM).all():  # NaN is not either
        raise BadData(f"log {path} has a rotation that is none, a quaternion of norm {norms.min()}; fetch it again")
    return columns


def _quaternions(columns: dict[str, Array]) -> Array:
    return np.stack([columns[name] for name in ("qx", "qy", "qz", "qw")], axis=1)


def _positions(columns: dict[str, Array]) -> Array:
    return np.stack([columns[name] for name in ("tx_m", "ty_m", "tz_m")], axis=1)
