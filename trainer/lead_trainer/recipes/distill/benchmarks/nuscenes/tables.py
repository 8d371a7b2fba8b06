"""The nuScenes tables that prediction needs: who was where in which keyframe, and what came before and after.

Reads `<version>/{scene,log,sample,sample_annotation,instance,category}.json`; schema: nuscenes-devkit,
`docs/schema_nuscenes.md`. Positions in the map's frame, metres.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from lead_trainer.contract.raw_data import SourceTree
from lead_trainer.data.raw_json import raw_json
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.recipes.distill.benchmarks.agent_frame import wrapped

KEYFRAME_SECONDS = 0.5
BUFFER_SECONDS = 0.15  # keyframes are not exactly half a second apart
STALE_SECONDS = 1.5  # an older annotation is no measure of the present speed


@dataclass(frozen=True, slots=True)
class Annotation:
    """One agent in one keyframe."""

    instance: str
    sample: str
    time_s: float
    x: float
    y: float
    yaw: float
    width: float
    length: float
    previous: str  # tokens; empty where there is none
    next: str


@dataclass(frozen=True)
class Tables:
    """Everything by token."""

    annotations: dict[str, Annotation]
    at: dict[tuple[str, str], str]  # (instance, sample) -> annotation
    in_sample: dict[str, tuple[str, ...]]  # sample -> annotations
    category: dict[str, str]  # instance -> category name
    scene: dict[str, str]  # sample -> scene name
    keyframe: dict[str, int]  # sample -> its number in the scene, from 0
    sample_at: dict[tuple[str, int], str]  # (scene name, keyframe) -> sample
    location: dict[str, str]  # scene name -> map

    def of(self, instance: str, sample: str) -> Annotation:
        """Returns an agent's annotation in a keyframe; raises BadData where there is none."""
        try:
            return self.annotations[self.at[(instance, sample)]]
        except KeyError:
            raise BadData(f"instance {instance} is not annotated in sample {sample}; are the tables whole?") from None

    def future(self, start: Annotation, seconds: float) -> list[Annotation]:
        """Returns the annotations after `start`, at most one a half second, as the challenge counts them."""
        return self._along(start, seconds, lambda annotation: annotation.next)

    def past(self, start: Annotation, seconds: float) -> list[Annotation]:
        """Returns the annotations before `start`, the nearest first."""
        return self._along(start, seconds, lambda annotation: annotation.previous)

    def _along(self, start: Annotation, seconds: float, step: Any) -> list[Annotation]:
        found: list[Annotation] = []
        token = step(start)
        while token and len(found) < int(seconds / KEYFRAME_SECONDS):
            annotation = self.annotations[token]
            if abs(annotation.time_s - start.time_s) >= seconds + BUFFER_SECONDS:
                break
            found.append(annotation)
            token = step(annotation)
        return found

    def kinematics(self, annotation: Annotation) -> tuple[float, float, float, float, float]:
        """Returns speed, acceleration, yaw rate and velocity x, y (map frame); 0 where the past is unknown.

        Differences to the annotation before, none older than STALE_SECONDS; as nuscenes-devkit's `PredictHelper`.
        """
        before = self._before(annotation)
        if before is None:
            return 0.0, 0.0, 0.0, 0.0, 0.0
        seconds = annotation.time_s - before.time_s
        vx, vy = (annotation.x - before.x) / seconds, (annotation.y - before.y) / seconds
        yaw_rate = float(wrapped(annotation.yaw - before.yaw)) / seconds
        speed, earlier = math.hypot(vx, vy), self._before(before)
        if earlier is None:
            return speed, 0.0, yaw_rate, vx, vy
        then = math.hypot(before.x - earlier.x, before.y - earlier.y) / (before.time_s - earlier.time_s)
        return speed, (speed - then) / seconds, yaw_rate, vx, vy

    def _before(self, annotation: Annotation) -> Annotation | None:
        before = self.annotations.get(annotation.previous)
        return before if before and annotation.time_s - before.time_s <= STALE_SECONDS else None


def read_tables(tree: SourceTree, version: str) -> Tables:
    """Reads the tables of a tree, once a process; raises BadData naming the file and what it lacks.

    Raises BadConfig where the tree has tables of other versions alone.

    The whole training set's annotations take some 5 GB of memory while they are read.
    """
    tables: Tables = _read_once(tree, version)  # type: ignore[arg-type]  # a tree is hashed by identity
    return tables


@lru_cache(maxsize=1)
def _read_once(tree: SourceTree, version: str) -> Tables:
    _refuse_other_version(tree, version)
    try:
        return _tables(*(_table(tree, version, name) for name in _NAMES))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise BadData(f"tables {version}/*.json do not fit together: {error!r}; fetch them again") from error


def _refuse_other_version(tree: SourceTree, version: str) -> None:
    """Raises BadConfig where the tree has other versions of the tables and not this one."""
    found = sorted({folder for file in tree.files() if (folder := file.path.partition("/")[0]).startswith("v1.0-")})
    if found and version not in found:
        raise BadConfig(
            f"nuscenes_version: found {version!r}, but the tree has {', '.join(found)}; set nuscenes_version={found[0]}"
        )


_NAMES = ("scene", "log", "sample", "sample_annotation", "instance", "category")


def _tables(scenes: Any, logs: Any, samples: Any, annotations: Any, instances: Any, categories: Any) -> Tables:
    place = {log["token"]: log["location"] for log in logs}
    scene_name = {scene["token"]: scene["name"] for scene in scenes}
    by_scene: dict[str, list[Any]] = {}
    for sample in samples:
        by_scene.setdefault(sample["scene_token"], []).append(sample)
    ordered = [sorted(rows, key=lambda row: row["timestamp"]) for rows in by_scene.values()]
    time_s = {sample["token"]: 1e-6 * sample["timestamp"] for sample in samples}
    known = {row["token"]: _annotation(row, time_s) for row in annotations}
    in_sample: dict[str, list[str]] = {}
    for token, annotation in known.items():
        in_sample.setdefault(annotation.sample, []).append(token)
    keyframe = {row["token"]: number for rows in ordered for number, row in enumerate(rows)}
    scene_of = {sample["token"]: scene_name[sample["scene_token"]] for sample in samples}
    category_name = {category["token"]: category["name"] for category in categories}
    return Tables(
        annotations=known,
        at={(annotation.instance, annotation.sample): token for token, annotation in known.items()},
        in_sample={sample: tuple(tokens) for sample, tokens in in_sample.items()},
        category={instance["token"]: category_name[instance["category_token"]] for instance in instances},
        scene=scene_of,
        keyframe=keyframe,
        sample_at={(scene_of[sample], number): sample for sample, number in keyframe.items()},
        location={scene["name"]: place[scene["log_token"]] for scene in scenes},
    )


def _annotation(row: Any, time_s: dict[str, float]) -> Annotation:
    width, length, _ = row["size"]
    x, y, _ = row["translation"]
    return Annotation(row["instance_token"], row["sample_token"], time_s[row["sample_token"]], x, y,
                      yaw_of(row["rotation"]), width, length, row["prev"], row["next"])  # fmt: skip


def yaw_of(quaternion: Sequence[float]) -> float:
    """Returns the heading of a rotation w, x, y, z: the direction of its x axis on the ground, radians."""
    w, x, y, z = np.asarray(quaternion, np.float64) / np.linalg.norm(quaternion)
    return math.atan2(2 * (x * y + w * z), 1 - 2 * (y * y + z * z))


def _table(tree: SourceTree, version: str, name: str) -> Any:
    path = f"{version}/{name}.json"
    try:
        rows = raw_json(tree.read(path))
    except ValueError as error:
        raise BadData(f"file {path} is not JSON: {error}; fetch it again") from error
    if not isinstance(rows, list):
        raise BadData(f"file {path} holds a {type(rows).__name__}, expected a list of rows; fetch it again")
    return rows
