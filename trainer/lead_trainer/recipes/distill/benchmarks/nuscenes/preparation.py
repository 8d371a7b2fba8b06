"""How a raw nuScenes tree becomes cache records: one agent of the prediction challenge in one keyframe.

A route is `<scene>/<instance>`, a frame the keyframe's number in the scene. The collections `train`, `train_val` and
`val` follow `maps/prediction/prediction_scenes.json`, which lists the challenge's agents; one whose six seconds of
future are not annotated is left out and counted. A record holds `image` (the raster) and `arrays`:

    future      (12, 3) float32   x, y, yaw in the agent's frame at 0.5 … 6.0 s
    history     (5, 3) float32    x, y, yaw at -2.0 … 0 s; NaN where it was not seen
    kinematics  (5,) float64      speed, acceleration, yaw rate, velocity x and y in the agent's frame
    pose        (3,) float64      x, y, yaw of the frame in the map's
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lead_trainer.contract.preparation import Preparation
from lead_trainer.contract.raw_data import RouteVerdict, SampleKey, Scan, SourceTree
from lead_trainer.data.array_block import pack_arrays
from lead_trainer.data.plain_scan import known_collections, plain_scan, sorted_samples
from lead_trainer.data.raw_json import raw_json
from lead_trainer.errors import BadData
from lead_trainer.recipes.distill.benchmarks.agent_frame import AgentFrame
from lead_trainer.recipes.distill.benchmarks.nuscenes.map_layers import read_city_map
from lead_trainer.recipes.distill.benchmarks.nuscenes.raster import HISTORY_SECONDS, View, draw_raster
from lead_trainer.recipes.distill.benchmarks.nuscenes.splits import split_of
from lead_trainer.recipes.distill.benchmarks.nuscenes.tables import (
    KEYFRAME_SECONDS,
    Annotation,
    Tables,
    read_tables,
)
from lead_trainer.recipes.distill.config_values import config_of_cache
from lead_trainer.recipes.prepare_keys import DigestedKeys

FORECAST_STEPS, FORECAST_SECONDS = 12, 6.0
HISTORY_STEPS = 5
COLLECTIONS = ("train", "train_val", "val")
AGENTS_FILE = "maps/prediction/prediction_scenes.json"
_PACKED_SHARE = 0.1  # of a raster's bytes after compression

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class RasterKeys(DigestedKeys):
    """Which tables are read, and what a raster is."""

    nuscenes_version: str
    raster_pixels: int
    raster_metres_per_pixel: float


class NuscenesPreparation(Preparation):
    """The preparation; pure in (tree, keys)."""

    version = "nuscenes-prepare/1"
    default_collections: tuple[str, ...] = ("train", "val")

    def all_collections(self) -> Sequence[str]:
        """Returns the splits."""
        return COLLECTIONS

    def config_keys(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the read values; `config` holds the recipe's keys and optionally `preset`. Raises BadConfig."""
        return RasterKeys.of(config_of_cache(config)).as_mapping()

    def scan(self, tree: SourceTree, config: Mapping[str, Any], collections: Sequence[str]) -> Scan:
        """Fills the named collections with the challenge's agents; a scene's verdict records whether it had any."""
        names = known_collections(collections, COLLECTIONS)
        tables, version = read_tables(tree, config["nuscenes_version"]), config["nuscenes_version"]
        kept: dict[str, list[SampleKey]] = {name: [] for name in COLLECTIONS}
        without = dict.fromkeys(COLLECTIONS, 0)
        verdicts = []
        for scene, agents in _candidates(tree, tables).items():
            split = split_of(scene, version)
            found = [key for agent in agents if (key := _sample_key(tables, scene, *agent)) is not None]
            kept[split] += found
            without[split] += len(agents) - len(found)
            reason = "kept" if found else "no_agent_with_a_whole_future" if agents else "no_agent"
            verdicts.append(RouteVerdict(scene, bool(found), reason, len(found)))
        size = int(config["raster_pixels"] ** 2 * 3 * _PACKED_SHARE)
        return plain_scan(
            verdicts,
            {name: sorted_samples(kept[name]) for name in names},
            lambda key: size,
            {n: {"agents": len(kept[n]) + without[n], "without_whole_future": without[n]} for n in names},
        )

    def record(self, tree: SourceTree, config: Mapping[str, Any], sample: SampleKey) -> Mapping[str, bytes]:
        """Returns raster and arrays of one agent; raises BadData naming the file that is missing or corrupt."""
        tables = read_tables(tree, config["nuscenes_version"])
        scene, target = _target(tables, sample.route, sample.frame)
        frame = AgentFrame(target.x, target.y, target.yaw)
        view = View(frame, config["raster_pixels"], config["raster_metres_per_pixel"])
        picture = draw_raster(view, read_city_map(tree, tables.location[scene]), tables, target)
        return {
            "image": pack_arrays({"raster": picture}, compress=True),
            "arrays": pack_arrays(agent_arrays(tables, target), compress=True),
        }

    def route_metas(self, tree: SourceTree, config: Mapping[str, Any], route: str, frames: Sequence[int]) -> pa.Table:
        """Returns the challenge's names of an agent, one row a frame."""
        tables = read_tables(tree, config["nuscenes_version"])
        scene, instance = route.split("/")
        samples = [_target(tables, route, frame)[1].sample for frame in frames]
        same = {"instance": instance, "location": tables.location[scene], "category": tables.category[instance]}
        columns = {name: pa.array([value] * len(frames), pa.string()) for name, value in same.items()}
        return pa.table({"frame": pa.array(frames, pa.int32()), "sample": pa.array(samples, pa.string()), **columns})


def agent_arrays(tables: Tables, target: Annotation) -> dict[str, Array]:
    """Returns the arrays of a record."""
    frame = AgentFrame(target.x, target.y, target.yaw)
    history = np.full((HISTORY_STEPS, 3), np.nan, np.float32)
    for annotation in (target, *tables.past(target, HISTORY_SECONDS)):
        ago = round((target.time_s - annotation.time_s) / KEYFRAME_SECONDS)
        history[HISTORY_STEPS - 1 - ago] = _pose_in(frame, annotation)
    speed, acceleration, yaw_rate, *velocity = tables.kinematics(target)
    ahead = [_pose_in(frame, annotation) for annotation in tables.future(target, FORECAST_SECONDS)]
    return {
        "future": np.array(ahead, np.float32),
        "history": history,
        "kinematics": np.array([speed, acceleration, yaw_rate, *frame.vectors_in(np.array(velocity))]),
        "pose": np.array([frame.x, frame.y, frame.yaw]),
    }


def _pose_in(frame: AgentFrame, annotation: Annotation) -> list[float]:
    x, y = frame.points_in(np.array([annotation.x, annotation.y]))
    return [float(x), float(y), float(frame.yaws_in(np.array(annotation.yaw)))]


def _candidates(tree: SourceTree, tables: Tables) -> dict[str, list[tuple[str, str]]]:
    """Returns (instance, sample) of the challenge's agents by scene, of the scenes that the tables hold."""
    try:
        listed = raw_json(tree.read(AGENTS_FILE))
        return {scene: [_agent(token) for token in listed.get(scene, ())] for scene in set(tables.scene.values())}
    except (ValueError, AttributeError) as error:
        raise BadData(
            f"file {AGENTS_FILE} does not list <instance>_<sample> by scene: {error}; fetch it again"
        ) from error


def _agent(token: str) -> tuple[str, str]:
    instance, sample = token.split("_")
    return instance, sample


def _sample_key(tables: Tables, scene: str, instance: str, sample: str) -> SampleKey | None:
    whole = len(tables.future(tables.of(instance, sample), FORECAST_SECONDS)) == FORECAST_STEPS
    return SampleKey(f"{scene}/{instance}", tables.keyframe[sample]) if whole else None


def _target(tables: Tables, route: str, frame: int) -> tuple[str, Annotation]:
    scene, _, instance = route.partition("/")
    sample = tables.sample_at.get((scene, frame))
    if sample is None:
        raise BadData(f"{scene} has no keyframe {frame}; are the tables whole?")
    return scene, tables.of(instance, sample)
