"""LEAD's CARLA routes as scenes: the pictures of `rgb/`, and the expert's pedals and wheel of `metas/`.

Steering is CARLA's, positive to the right; nuScenes' is positive to the left. Frames are of 4 Hz.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from lead_trainer.contract.raw_data import SourceTree
from lead_trainer.errors import BadData
from lead_trainer.recipes.lead.ingest.plain_pickle import read_plain
from lead_trainer.recipes.lead.ingest.route_tree import TREE_FOLDER, frame_path, route_tree
from lead_trainer.recipes.world.ingest.pose_actions import STANDING_SPEED
from lead_trainer.recipes.world.ingest.scenes import Actions, Scene, SceneSource, sorted_out
from lead_trainer.recipes.world.ingest.splits import splits
from lead_trainer.recipes.world.prepare_keys import WorldKeys

FRAME_US = 250_000  # 20 Hz of the simulator, every fifth step saved
PICTURES = "rgb"


class CarlaRoutes(SceneSource):
    """The routes of a tree with `data/<scenario>/<route>/{rgb,metas}/`; splits are seeded by route."""

    def __init__(self, tree: SourceTree, keys: WorldKeys) -> None:
        self._tree, self._folders = tree, {}
        routes = route_tree(tree.files())
        names = {route.path.removeprefix(f"{TREE_FOLDER}/").replace("/", "__"): route for route in routes.routes}
        split = splits(sorted(names), "", keys.split, keys.val_share, keys.split_seed)
        found = []
        for name, route in names.items():
            scenario = route.path.split("/")[1]
            files = tuple(frame_path(route.path, PICTURES, frame) for frame in range(route.frames))
            times = FRAME_US * np.arange(route.frames, dtype=np.int64)
            found.append(Scene(name, split[name], scenario, files, times))
            self._folders[name] = route.path
        self.scenes, self.verdicts = sorted_out(found, routes.sizes)

    def actions(self, scene: Scene) -> Actions:
        """Returns the mean of the commands at both frames; gear is 1 where the car moves at the later one."""
        commands = np.array([self._command(scene, frame) for frame in range(len(scene.files))])
        values = 0.5 * (commands[1:] + commands[:-1])
        values[:, 3] = commands[1:, 3]
        return Actions(values.astype(np.float32), "recorded")

    def _command(self, scene: Scene, frame: int) -> list[float]:
        path = frame_path(self._folders[scene.name], "metas", frame)
        meta = read_plain(self._tree.read(path), path)
        if not isinstance(meta, dict):
            raise BadData(f"file {path} holds a {type(meta).__name__}, expected a dict of ego fields")
        steer, throttle, brake, speed = (_number(meta, key, path) for key in ("steer", "throttle", "brake", "speed"))
        limits = ((steer, -1.0, 1.0), (throttle, 0.0, 1.0), (brake, 0.0, 1.0))
        return [*(min(max(value, low), high) for value, low, high in limits), float(speed > STANDING_SPEED)]


def _number(meta: Mapping[str, Any], key: str, path: str) -> float:
    try:
        value = float(meta[key])
    except (KeyError, TypeError, ValueError) as error:
        raise BadData(f"file {path} has no number {key}; collect the route again, or remove it") from error
    if not math.isfinite(value):
        raise BadData(f"file {path}: {key}: found {value}, expected a finite number; collect the route again")
    return value
