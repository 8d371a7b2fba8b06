"""LiDAR sweeps and radar returns of one frame, in the formats LEAD stores.

Called by `route_files.py`. Five LiDAR sweeps and ten radar sweeps, each moved into the ego's frame of now by its own
motion.
"""

import io
from datetime import date

import laspy
import numpy as np
import numpy.typing as npt

from lead_trainer.example_worlds.lead.episode import Episode
from lead_trainer.example_worlds.lead.geometry import FloatArray, Pose2
from lead_trainer.example_worlds.lead.ranging import Boxes, Hits, boxes_of, cast, radial_velocity

LIDAR_MOUNT = (0.0, 0.0, 2.5)
LIDAR_SWEEPS = 5
RADAR_SWEEPS = 10
RADAR_MOUNTS = (((2.6, 0.0, 0.6), -45.0), ((2.6, 0.0, 0.6), 45.0), ((-2.6, 0.0, 0.6), 135.0), ((-2.6, 0.0, 0.6), 225.0))
RADAR_COPIES_IN_LIDAR = 5
RADAR_COPY_REACH_M = 32.0
WINDOW_M = ((-32.0, 64.0), (-40.0, 40.0), (-4.0, 10.0))
LAS_SCALE_M = 0.1
_LINES = np.tan(np.deg2rad(np.linspace(-24.0, 11.0, 36)))
_BEARINGS = np.deg2rad(np.arange(-180.0, 180.0, 2.0))
_RADAR_BEARINGS = np.deg2rad(np.arange(-44.5, 45.0, 3.4))
_RADAR_LINES = np.tan(np.deg2rad(np.array([-1.2, 0.6, 2.4])))

HalfArray = npt.NDArray[np.float16]


class Ranging:
    """The LiDAR and radars of one episode; remembers the radar returns of steps that later frames need again."""

    def __init__(self, episode: Episode) -> None:
        self._episode = episode
        self._moving = [actor for actor in episode.actors if actor.moves]
        self._standing = boxes_of([actor for actor in episode.actors if not actor.moves], 0)
        self._boxes: dict[int, Boxes] = {}
        self._radar: dict[int, list[HalfArray]] = {}

    def _boxes_at(self, step: int) -> Boxes:
        if step not in self._boxes:
            self._boxes = {known: boxes for known, boxes in self._boxes.items() if known > step - 30}
            xy = self._episode.ego_xy[step]
            self._boxes[step] = Boxes.joined(
                self._standing.near(xy, 75.0), boxes_of(self._moving, step).near(xy, 100.0)
            )
        return self._boxes[step]

    def radar(self, step: int, rig: Pose2 | None = None) -> tuple[list[HalfArray], dict[int, int]]:
        """Returns four arrays (N, 4) of x, y, z, radial velocity, and the number of returns per actor id."""
        pose, boxes = rig or self._episode.ego_pose(step), self._boxes_at(step)
        ego = self._episode.ego_pose(step)
        velocity = self._episode.ego_speed[step] * np.array([np.cos(ego.yaw), np.sin(ego.yaw)])
        arrays, owners = [], []
        for mount, yaw in RADAR_MOUNTS:
            jitter = np.deg2rad(0.85 * (step % 4))
            hits = cast(boxes, pose, mount, _RADAR_BEARINGS + np.deg2rad(yaw) + jitter, _RADAR_LINES, 95.0)
            speed = radial_velocity(hits, boxes, pose, mount, velocity)
            arrays.append(np.concatenate([hits.points, speed[:, None]], axis=1).astype(np.float16))
            owners.append(boxes.owner[hits.box])
        return arrays, _counted(np.concatenate(owners))

    def _radar_of_step(self, step: int) -> list[HalfArray]:
        if step not in self._radar:
            self._radar = {known: arrays for known, arrays in self._radar.items() if known > step - 30}
            self._radar[step] = self.radar(step)[0]
        return self._radar[step]

    def lidar(self, step: int) -> tuple[FloatArray, npt.NDArray[np.uint8], dict[int, int]]:
        """Returns points (N, 3) in the ego's frame, their age in steps (N,), and the LiDAR points per actor id."""
        now = self._episode.ego_pose(step)
        points, ages, owners = [], [], []
        for age in range(RADAR_SWEEPS):
            then = self._episode.ego_pose(step - age)
            if age < LIDAR_SWEEPS:
                hits = self._sweep(step - age, then, age)
                owners.append(self._boxes_at(step - age).owner[hits.box])
                points.append(now.to_local(then.to_world(hits.points)))
            else:
                points.append(np.zeros((0, 3)))
            radar = np.concatenate(self._radar_of_step(step - age))[:, :3].astype(np.float64)
            close = radar[np.linalg.norm(radar[:, :2], axis=1) < RADAR_COPY_REACH_M]
            copies = [radar, *[close] * (RADAR_COPIES_IN_LIDAR - 1)]
            points.append(now.to_local(then.to_world(np.concatenate(copies))))
            ages.append(np.full(len(points[-1]) + len(points[-2]), age, dtype=np.uint8))
        merged = np.concatenate(points)
        inside = np.ones(len(merged), dtype=bool)
        for axis, (low, high) in enumerate(WINDOW_M):
            inside &= (merged[:, axis] >= low) & (merged[:, axis] <= high)
        return merged[inside], np.concatenate(ages)[inside], _counted(np.concatenate(owners))

    def _sweep(self, step: int, pose: Pose2, age: int) -> Hits:
        boxes = self._boxes_at(step)
        return cast(boxes, pose, LIDAR_MOUNT, _BEARINGS + np.deg2rad(0.4 * age), _LINES, 75.0)


def _counted(owners: npt.NDArray[np.int64]) -> dict[int, int]:
    return {int(owner): int(count) for owner, count in zip(*np.unique(owners, return_counts=True), strict=True)}


def las_bytes(points: FloatArray, age: npt.NDArray[np.uint8]) -> bytes:
    """Returns a LAZ file of point format 0, scale 0.1 m, with the extra dimension `time` (age in steps)."""
    header = laspy.LasHeader(point_format=0, version="1.2")
    header.add_extra_dim(laspy.ExtraBytesParams(name="time", type=np.uint8))
    header.scales = np.full(3, LAS_SCALE_M)
    header.offsets = points.min(axis=0) if len(points) else np.zeros(3)
    header.creation_date = date(2025, 11, 2)
    record = laspy.LasData(header)
    record.x, record.y, record.z = points[:, 0], points[:, 1], points[:, 2]
    record["time"] = age
    stream = io.BytesIO()
    record.write(stream, do_compress=True, laz_backend=laspy.LazBackend.Lazrs)
    return stream.getvalue()


def radar_bytes(arrays: list[HalfArray]) -> bytes:
    """Returns the compressed npz with the keys radar1..radar4."""
    stream = io.BytesIO()
    first, second, third, fourth = arrays
    np.savez_compressed(stream, radar1=first, radar2=second, radar3=third, radar4=fourth)
    return stream.getvalue()
