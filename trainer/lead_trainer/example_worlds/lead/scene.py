"""Turns actors at one simulation step into one flat list of coloured polygons in world coordinates.

Called by `route_files.py` once a frame (standing things once a route); `camera.py` draws the result from any rig pose.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from lead_trainer.example_worlds.lead import meshes
from lead_trainer.example_worlds.lead.actors import Actor
from lead_trainer.example_worlds.lead.geometry import FloatArray
from lead_trainer.example_worlds.lead.scenarios import Lights

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Polygons:
    """Faces one after the other: `first` and `count` point into `vertices`; `owner` is the actor's id."""

    vertices: FloatArray
    first: IntArray
    count: IntArray
    normal: FloatArray
    colour: FloatArray
    semantic: IntArray
    glows: npt.NDArray[np.bool_]
    owner: IntArray
    centre: FloatArray
    behind: npt.NDArray[np.bool_]
    """True for houses, which are drawn in a layer of their own because they are too large to sort by distance."""

    def moved(self, xy: FloatArray, yaw: float, owner: int, behind: bool) -> "Polygons":
        """Returns a mesh placed in the world."""
        cos, sin = np.cos(yaw), np.sin(yaw)
        turn = np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]])
        faces = len(self.first)
        return Polygons(
            self.vertices @ turn.T + np.array([xy[0], xy[1], 0.0]),
            self.first,
            self.count,
            self.normal @ turn.T,
            self.colour,
            self.semantic,
            self.glows,
            np.full(faces, owner),
            np.tile(xy, (faces, 1)),
            np.full(faces, behind),
        )


def joined(parts: Sequence[Polygons]) -> Polygons:
    """Returns several lists of faces as one."""
    shift = np.cumsum([0, *(len(part.vertices) for part in parts[:-1])])
    columns = {field.name: np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Polygons)}
    columns["first"] = np.concatenate([part.first + start for part, start in zip(parts, shift, strict=True)])
    return Polygons(**columns)


def place(actors: Iterable[Actor], step: int, lights: Lights) -> Polygons:
    """Returns the faces of the actors at a simulation step."""
    parts = []
    for actor in actors:
        pose = actor.pose(step)
        parts.append(_mesh_of(actor, step, lights).moved(pose.xy, pose.yaw, actor.actor_id, actor.kind == "building"))
    return joined(parts)


def _mesh_of(actor: Actor, step: int, lights: Lights) -> Polygons:
    stride = 0.0
    if actor.kind in ("walker", "bicycle") and actor.speed_at(step) > 0.1:
        stride = round(float(np.sin(0.45 * step + actor.actor_id)), 1)
    state = (lights.ego, lights.crossing, lights.oncoming, lights.crossing)[actor.actor_id % 4]
    return _mesh(actor.kind, actor.colour, actor.extent, actor.brake_at(step) > 0.5, stride, state)


@lru_cache(maxsize=2048)
def _mesh(
    kind: str,
    colour: tuple[int, int, int],
    extent: tuple[float, float, float],
    braking: bool,
    stride: float,
    light: str,
) -> Polygons:
    match kind:
        case "car" | "van" | "parked_car" | "parked_mesh":
            return _packed(meshes.vehicle(extent, colour, braking=braking and "parked" not in kind, boxy=kind == "van"))
        case "walker":
            return _packed(meshes.walker(colour, stride))
        case "bicycle":
            return _packed(meshes.bicycle(colour, stride))
        case "cone":
            return _packed(meshes.cone())
        case "warning":
            return _packed(meshes.warning(extent))
        case "building":
            return _packed(meshes.building(extent, colour))
        case "tree":
            return _packed(meshes.tree(colour))
        case "pole":
            return _packed(meshes.stop_sign() if light == "None" else meshes.traffic_light(light))
    raise ValueError(f"example data: actor kind {kind!r} has no mesh; add it to scene.py")


def _packed(faces: Sequence[meshes.Face]) -> Polygons:
    count = np.array([len(face.points) for face in faces])
    normal = np.stack([np.cross(f.points[1] - f.points[0], f.points[2] - f.points[0]) for f in faces])
    return Polygons(
        vertices=np.concatenate([face.points for face in faces]).astype(np.float64),
        first=np.cumsum(count) - count,
        count=count,
        normal=normal / np.linalg.norm(normal, axis=1, keepdims=True),
        colour=np.array([face.colour for face in faces], dtype=np.float64),
        semantic=np.array([face.semantic for face in faces]),
        glows=np.array([face.glows for face in faces]),
        owner=np.zeros(len(faces), dtype=np.int64),
        centre=np.zeros((len(faces), 2)),
        behind=np.zeros(len(faces), dtype=bool),
    )
