"""Renders one example route and yields its files as (path in the route folder, bytes), frame by frame.

Called by `tree.py`, which decides where they go. Formats are LEAD's, file by file.
"""

import json
import lzma
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from lead_trainer.example_worlds.lead.camera import FloatImage, Rig, View
from lead_trainer.example_worlds.lead.driving import STEP_S
from lead_trainer.example_worlds.lead.episode import STEPS_PER_FRAME, Episode, simulate
from lead_trainer.example_worlds.lead.geometry import FloatArray, Pose2
from lead_trainer.example_worlds.lead.ground import ByteArray, cut_hdmap, paint_ground
from lead_trainer.example_worlds.lead.labels import list_boxes
from lead_trainer.example_worlds.lead.metas import describe
from lead_trainer.example_worlds.lead.scene import Polygons, joined, place
from lead_trainer.example_worlds.lead.sensors import Ranging, las_bytes, radar_bytes
from lead_trainer.example_worlds.lead.shadows import near, shadows
from lead_trainer.example_worlds.lead.target_points import TargetPoints
from lead_trainer.example_worlds.lead.verdicts import verdict
from lead_trainer.example_worlds.lead.weather import WEATHERS, paint_sky

DEPTH_REACH_M = 50.0
PICKLE_PROTOCOL = 4
"""4 names only modules that numpy 1.26 (LEAD's) and numpy 2 both have."""

File = tuple[str, bytes]


@dataclass(frozen=True)
class RouteRequest:
    """What distinguishes one route from another."""

    seed: int
    index: int
    frames: int
    failed: bool
    image_quality: int


class RouteRenderer:
    """Everything of one route that frames share."""

    def __init__(self, request: RouteRequest) -> None:
        rng = np.random.default_rng([request.seed, request.index])
        self._request = request
        self.episode: Episode = simulate(rng, request.index, request.frames)
        episode, weather = self.episode, WEATHERS[self.episode.scenario.weather]
        self._weather = weather
        self._ground = paint_ground(rng, episode.roads, episode.scenario, episode.ego_xy)
        self._rig = Rig(self._ground, paint_sky(rng, weather), weather)
        self._ranging = Ranging(episode)
        self._targets = TargetPoints(episode.roads, episode.scenario)
        standing = [actor for actor in episode.actors if not actor.moves and actor.kind != "pole"]
        self._changing = [actor for actor in episode.actors if actor.moves or actor.kind == "pole"]
        self._standing: Polygons = place(standing, 0, self.episode.lights[0])
        self._standing_shadows: list[FloatArray] = shadows(standing, 0, weather)

    @property
    def name(self) -> str:
        """The route folder's name, as LEAD builds it."""
        index = self._request.index
        stamp = f"11_{2 + index // 24 % 26:02d}_{index % 24:02d}_{(index * 7) % 60:02d}_{(index * 13) % 60:02d}"
        return f"999_Rep-1_{self.episode.scenario.town}_{index}_route0_{stamp}"

    def files(self, frame: int) -> Iterator[File]:
        """Yields every file of one frame."""
        step = self.episode.step_of(frame)
        ego = self.episode.ego_pose(step)
        shift, turn = self.episode.perturbation[frame]
        other = ego.shifted(float(shift), float(np.deg2rad(turn)))
        polygons = joined([self._standing, place(self._changing, step, self.episode.lights[step])])
        dark = self._standing_shadows + shadows([a for a in self._changing if a.moves], step, self._weather)
        view = self._rig.shoot(polygons, ego, near(dark, ego))
        radar, radar_counts = self._ranging.radar(step)
        points, age, lidar_counts = self._ranging.lidar(step)
        boxes = list_boxes(self.episode, step, lidar_counts, radar_counts, view.visible_pixels)
        meta = describe(self.episode, frame, boxes, self._targets, jpeg_quality=self._request.image_quality)
        name = f"{frame:04d}"
        yield from self._pictures(view, ego, name, "")
        yield from self._pictures(self._rig.shoot(polygons, other, near(dark, other)), other, name, "_perturbated")
        yield f"radar/{name}.npz", radar_bytes(radar)
        yield f"radar_perturbated/{name}.npz", radar_bytes(self._ranging.radar(step, other)[0])
        yield f"lidar/{name}.laz", las_bytes(points, age)
        yield f"bboxes/{name}.pkl", _packed(boxes)
        yield f"metas/{name}.pkl", _packed(meta)

    def _pictures(self, view: View, pose: Pose2, name: str, suffix: str) -> Iterator[File]:
        quality = [cv2.IMWRITE_JPEG_QUALITY, self._request.image_quality]
        yield f"rgb{suffix}/{name}.jpg", _encoded(".jpg", view.bgr, quality)
        yield f"semantics{suffix}/{name}.png", _encoded(".png", view.semantic)
        yield f"depth{suffix}/{name}.png", _encoded(".png", quantised_depth(view.depth_m))
        yield f"hdmap{suffix}/{name}.png", _encoded(".png", cut_hdmap(self._ground, pose))

    def verdict(self) -> dict[str, Any]:
        """Returns the content of the route's `results.json`."""
        driven = float(self.episode.ego_arc[-1] - self.episode.ego_arc[self.episode.step_of(0)])
        duration = self._request.frames * STEPS_PER_FRAME * STEP_S
        return verdict(
            self._request.index, failed=self._request.failed, route_length_m=round(driven, 2), duration_s=duration
        )


def quantised_depth(depth_m: FloatImage) -> ByteArray:
    """Returns depth at a quarter of the resolution as LEAD stores it: 255 levels up to 50 m."""
    side = (depth_m.shape[1] // 4, depth_m.shape[0] // 4)
    small = cv2.resize(np.minimum(depth_m, DEPTH_REACH_M), side, interpolation=cv2.INTER_AREA)
    return np.asarray(np.rint(small * (255 / DEPTH_REACH_M)), np.uint8)


def json_bytes(document: dict[str, Any]) -> bytes:
    """Returns an indented JSON file."""
    return json.dumps(document, indent=2).encode()


def _packed(document: object) -> bytes:
    return lzma.compress(pickle.dumps(document, protocol=PICKLE_PROTOCOL), preset=1)


def _encoded(suffix: str, picture: npt.NDArray[np.uint8], options: list[int] | None = None) -> bytes:
    done, data = cv2.imencode(suffix, picture, options or [])
    if not done:
        raise RuntimeError(f"example data: OpenCV could not encode a {picture.shape} {picture.dtype} array as {suffix}")
    return data.tobytes()
