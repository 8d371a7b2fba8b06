"""On trees of other seeds, frames and actions are those of `nuscenes-devkit` 1.2.0 and of the formulas beside it."""

import json
from pathlib import Path
from typing import Any

import pytest

from lead_testing.golden.nuscenes import numbers
from lead_testing.oracles import ask
from lead_trainer.example_worlds.world.tree import ExampleTree, write_example_tree
from lead_trainer.recipes.nuscenes_splits import FULL_VERSION

DEVKIT = """
import contextlib, io, math
import numpy as np
from nuscenes.can_bus.can_bus_api import NuScenesCanBus
from nuscenes.nuscenes import NuScenes
from nuscenes.utils.splits import create_splits_scenes
from pyquaternion import Quaternion

with contextlib.redirect_stdout(io.StringIO()):
    kit = NuScenes(question["version"], question["root"], verbose=False)
    bus = NuScenesCanBus(question["root"])
validating = set(create_splits_scenes()["val"])

def chain(table, token):
    while token:
        row = kit.get(table, token)
        yield row
        token = row["next"]

def shots_of(scene, sweeps):
    samples = list(chain("sample", scene["first_sample_token"]))
    keyframes = [kit.get("sample_data", sample["data"]["CAM_FRONT"]) for sample in samples]
    return list(chain("sample_data", keyframes[0]["token"])) if sweeps else keyframes

def of_messages(messages, times):
    middles = (times[1:] + times[:-1]) / 2
    at = np.array([message["utime"] for message in messages], float)
    def values(key):
        return np.array([message[key] for message in messages], float)
    gear = values("gear_position")[[np.abs(at - middle).argmin() for middle in middles]] == 7
    scaled = [("steering", 780.0, -1), ("throttle", 1000.0, 0), ("brake", 126.0, 0)]
    columns = [np.clip(np.interp(middles, at, values(key)) / full, low, 1) for key, full, low in scaled]
    return np.stack([*columns, gear], 1).tolist()

def of_poses(rows, times):
    poses = [kit.get("ego_pose", row["ego_pose_token"]) for row in rows]
    places = np.array([pose["translation"][:2] for pose in poses])
    yaws = np.array([Quaternion(pose["rotation"]).yaw_pitch_roll[0] for pose in poses])
    length, turn = np.hypot(*np.diff(places, axis=0).T), np.diff(np.unwrap(yaws))
    bend = np.array([t / s if s >= 0.05 else 0.0 for t, s in zip(turn, length)])
    speed, middles = length / (np.diff(times) / 1e6), (times[1:] + times[:-1]) / 2 / 1e6
    pull = np.gradient(speed, middles) if len(speed) > 1 else np.zeros(1)
    wheel = np.arctan(2.588 * bend) * 15 / math.radians(780)
    columns = np.clip(wheel, -1, 1), np.clip(pull / 3, 0, 1), np.clip(-pull / 6, 0, 1), speed > 0.1
    return np.stack(columns, 1).tolist()

answer = {}
for scene in kit.scene:
    name, frames, has_can = scene["name"], {}, True
    for kind in ("keyframes", "sweeps"):
        rows = shots_of(scene, kind == "sweeps")
        times = np.array([row["timestamp"] for row in rows], float)
        poses = of_poses(rows, times)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                actions = of_messages(bus.get_messages(name, "vehicle_monitor"), times)
        except Exception:
            actions, has_can = poses, False
        files, stamps = [row["filename"] for row in rows], [row["timestamp"] for row in rows]
        frames[kind] = {"files": files, "timestamps": stamps, "actions": actions, "actions_from_poses": poses}
    answer[name] = {"split": "val" if name in validating else "train", "has_can": has_can, "frames": frames}
"""


def add_a_map(root: Path) -> None:
    """Writes the table that the kit wants and that the recipe does not read."""
    tokens = [log["token"] for log in json.loads((root / FULL_VERSION / "log.json").read_text())]
    row = {"token": "map", "log_tokens": tokens, "category": "semantic_prior", "filename": "maps/plain.png"}
    (root / FULL_VERSION / "map.json").write_text(json.dumps([row]))
    (root / "maps").mkdir()
    (root / "maps/plain.png").touch()


@pytest.mark.parametrize(
    "tree",
    [
        ExampleTree(train=2, val=1, keyframes=4, size=(24, 40), seed=11, sweeps=True, without_can=1),
        ExampleTree(train=1, val=1, keyframes=2, size=(24, 40), seed=12, without_can=2),
    ],
)
def test_w_01_and_w_03_other_trees_are_read_as_the_devkit_reads_them(tree: ExampleTree, tmp_path: Path) -> None:
    names = write_example_tree(tmp_path, tree)
    (tmp_path / "can_bus").mkdir(exist_ok=True)
    add_a_map(tmp_path)
    wanted = ask(DEVKIT, {"version": FULL_VERSION, "root": str(tmp_path)})
    found = numbers(str(tmp_path))["scenes"]
    assert list(wanted) == list(found) == names
    assert sum(not scene["has_can"] for scene in wanted.values()) == tree.without_can
    for name, scene in wanted.items():
        ours: dict[str, Any] = found[name]
        assert (ours["split"], ours["has_can"]) == (scene["split"], scene["has_can"])
        for kind, values in scene["frames"].items():
            for key in ("files", "timestamps"):
                assert ours["frames"][kind][key] == values[key], (name, kind, key)
            for key in ("actions", "actions_from_poses"):
                for step, (one, other) in enumerate(zip(ours["frames"][kind][key], values[key], strict=True)):
                    assert one == pytest.approx(other, abs=1e-6), (name, kind, key, step)
