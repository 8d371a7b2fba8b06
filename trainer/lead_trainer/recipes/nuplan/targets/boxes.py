"""Boxes and ways of a sweep, in the vehicle's frame at that moment: turned by the heading, in two dimensions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lead_trainer.recipes.nuplan.geometry import Doubles, relative, turned, wrapped
from lead_trainer.recipes.nuplan.ingest.boxes import Boxes, read_boxes
from lead_trainer.recipes.nuplan.ingest.log_tables import Int64, Log

MOVING = ("vehicle", "pedestrian", "bicycle")  # kinds that have ways
SWEEPS_PER_S = 20
_SLACK_S = 0.5  # read beyond the last pose of a way, for a neighbour to interpolate with

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Agents:
    """The boxes of a sweep, in the order of the table."""

    tracks: tuple[str, ...]
    categories: tuple[str, ...]
    utm: Doubles  # (n, 3) x, y, yaw
    poses: Doubles  # (n, 3) relative to the rear axle
    sizes: Doubles  # (n, 3) length, width, height, metres
    z: Doubles  # (n,) metres, as the city's
    velocities_utm: Doubles  # (n, 2) m/s along UTM's axes
    velocities: Doubles  # (n, 2) over ground, along the vehicle's axes
    ways_utm: Doubles  # (n, 1 + steps, 4) x, y, yaw, speed at 0, 1 … steps; NaN where the track has no pose


def agents_of(log: Log, sweep: int, steps: int, step_s: float) -> Agents:
    """Returns boxes and ways of a sweep."""
    now = int(log.timestamps[sweep])
    until = now + round(1e6 * (steps * step_s + _SLACK_S))
    later = np.flatnonzero((log.timestamps >= now) & (log.timestamps <= until))
    boxes = read_boxes(log, [sweep, *(int(other) for other in later if other != sweep)])
    rows = boxes.of_sweep(sweep)
    pose = log.sweep_pose(sweep)
    utm = np.stack([boxes.x[rows], boxes.y[rows], boxes.yaw[rows]], axis=1)
    velocities = np.stack([boxes.vx[rows], boxes.vy[rows]], axis=1)
    tracks = tuple(boxes.tracks[row] for row in rows)
    categories = tuple(log.tracks[track].category for track in tracks)
    at = now + np.round(1e6 * step_s * np.arange(steps + 1)).astype(np.int64)
    by_track: dict[str, list[int]] = {}
    for row, track in enumerate(boxes.tracks):
        by_track.setdefault(track, []).append(row)
    ways = np.full((len(rows), steps + 1, 4), np.nan)
    for number, (track, category) in enumerate(zip(tracks, categories, strict=True)):
        if category in MOVING:
            ways[number] = way_at(boxes, by_track[track], log.timestamps, at)
    return Agents(
        tracks=tracks,
        categories=categories,
        utm=utm,
        poses=relative(utm, pose.place[0], pose.place[1], pose.heading),
        sizes=np.stack([boxes.length[rows], boxes.width[rows], boxes.height[rows]], axis=1),
        z=boxes.z[rows],
        velocities_utm=velocities,
        velocities=turned(velocities, -pose.heading),
        ways_utm=ways,
    )


def way_at(boxes: Boxes, rows: Sequence[int], timestamps: Int64, at: Int64) -> Doubles:
    """Returns x, y, yaw, speed (times, 4) of a track: linear in time between boxes, NaN before and after all."""
    owners = boxes.sweep[list(rows)]
    order = np.argsort(timestamps[owners], kind="stable")
    picked = np.array(rows, np.int64)[order]
    times = timestamps[boxes.sweep[picked]].astype(np.float64)
    speed = np.hypot(boxes.vx[picked], boxes.vy[picked])
    columns = (boxes.x[picked], boxes.y[picked], np.unwrap(boxes.yaw[picked]), speed)
    values = np.stack([np.interp(at, times, column) for column in columns], axis=1)
    values[:, 2] = wrapped(values[:, 2])
    values[(at < times[0]) | (at > times[-1])] = np.nan
    return values


def ego_way(log: Log, sweep: int, steps: int, step_s: float) -> tuple[Doubles, Int64]:
    """Returns the ego's x, y, heading, speed in UTM (n, 4), 1 … `steps` steps later, and the times (n,), us.

    A step is a whole number of sweeps; poses are not interpolated, and those after the end of the log are left out.
    """
    rows = sweep + np.round(np.arange(1, steps + 1) * step_s * SWEEPS_PER_S).astype(np.int64)
    rows = rows[rows < len(log.timestamps)]
    poses = [log.sweep_pose(int(row)) for row in rows]
    places = [[*pose.place[:2], pose.heading, np.hypot(*pose.velocity)] for pose in poses]
    return np.array(places, np.float64).reshape(-1, 4), log.timestamps[rows]
