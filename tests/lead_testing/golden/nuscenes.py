"""What the recipe `world` reads of a nuScenes tree: scenes, actions, windows, and baselines of its pictures.

The layout and the formulas are `shared/golden/nuscenes_world/README.md`'s. PSNR and SSIM are scikit-image's definitions
(Gaussian weights of sigma 1.5, borders left out), so that these numbers need no package.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lead_testing.golden.picture_metrics import psnr, ssim
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.recipes.world.ingest.nuscenes_scenes import NuscenesScenes
from lead_trainer.recipes.world.ingest.pictures import fitted, read_picture
from lead_trainer.recipes.world.ingest.scenes import Scene
from lead_trainer.recipes.world.prepare_keys import WorldKeys, data_keys_of
from lead_trainer.recipes.world.windows import count_windows, skipped_actions

WINDOWS = ((10, 1), (5, 1), (5, 2))  # length, skip
SIZE = (256, 256)

Doubles = npt.NDArray[np.float64]


def numbers(source: str) -> dict[str, Any]:
    """Returns what the expected file of a tree holds."""
    tree = FolderTree(Path(source))
    read = {
        frames: NuscenesScenes(tree, WorldKeys.of(data_keys_of({"data": {"frames": frames}})))
        for frames in ("keyframes", "sweeps")
    }
    scenes = {scene.name: scene for scene in read["keyframes"].scenes.values()}
    pictures = {name: _pictures(tree, scene) for name, scene in scenes.items()}
    training = [pictures[name] for name, scene in scenes.items() if scene.split == "train"]
    mean_picture = np.concatenate(training or list(pictures.values())).mean(axis=0)
    found = {name: _of_pictures(pictures[name], mean_picture) for name in scenes}
    for name, scene in scenes.items():
        actions = read["keyframes"].actions(scene)
        facts = {"split": scene.split, "location": scene.location, "has_can": actions.source == "can"}
        found[name] |= {**facts, "frames": {kind: _of_frames(source, name) for kind, source in read.items()}}
    splits = {split: [found[name] for name in found if found[name]["split"] == split] for split in ("train", "val")}
    return {"scenes": found, "baselines": {split: _baselines(scenes) for split, scenes in splits.items() if scenes}}


def _of_frames(source: NuscenesScenes, name: str) -> dict[str, Any]:
    scene = next(each for each in source.scenes.values() if each.name == name)
    actions, count = source.actions(scene).values, len(scene.files)
    return {
        "files": list(scene.files),
        "timestamps": scene.timestamps.tolist(),
        "actions": actions.tolist(),
        "actions_from_poses": source.actions_from_poses(scene).tolist(),
        "windows": {f"length {length} skip {skip}": count_windows(count, length, skip) for length, skip in WINDOWS},
        "actions_skip_2": skipped_actions(actions[: (count - 1) // 2 * 2], 2).tolist(),
    }


def _of_pictures(pictures: Doubles, mean_picture: Doubles) -> dict[str, Any]:
    pairs = list(zip(pictures[1:], pictures[:-1], strict=True))
    return {
        "mean_rgb_256": pictures.mean(axis=(1, 2)).tolist(),
        "copy_last_keyframe": {
            "psnr": [psnr(one, other) for one, other in pairs],
            "ssim_skimage": [ssim(one, other) for one, other in pairs],
        },
        "mean_colour_psnr": [psnr(one, one.mean(axis=(0, 1))) for one in pictures],
        "mean_picture_psnr": [psnr(one, mean_picture) for one in pictures],
    }


def _baselines(scenes: Sequence[dict[str, Any]]) -> dict[str, float]:
    lists = {
        "copy_last_psnr": [scene["copy_last_keyframe"]["psnr"] for scene in scenes],
        "copy_last_ssim": [scene["copy_last_keyframe"]["ssim_skimage"] for scene in scenes],
        "mean_picture_psnr": [scene["mean_picture_psnr"] for scene in scenes],
        "mean_colour_psnr": [scene["mean_colour_psnr"] for scene in scenes],
    }
    return {name: float(np.mean([value for values in each for value in values])) for name, each in lists.items()}


def _pictures(tree: FolderTree, scene: Scene) -> Doubles:
    """Returns the pictures (T, 256, 256, 3) in 0 … 255."""
    return np.stack([fitted(read_picture(tree.read(path), path), SIZE, "none") for path in scene.files]).astype(float)
