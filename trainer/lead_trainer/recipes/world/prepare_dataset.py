"""`prepare_dataset`: a raw tree to the guide's processed layout, which `data_root` may then name.

    {train,val}/<scene>/images/000.jpg …, actions.npy, metadata.json      see `ingest.processed_tree`
    prepared.json                                                         what it was made of

A scene is written beside its place and renamed when it is whole, so a command that was stopped goes on where it was; a
second one over the same files does nothing. A cache of the result holds the records of a cache of the raw tree.
"""

import argparse
import io
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lead_trainer.contract.raw_data import RouteVerdict, SourceTree
from lead_trainer.data.digest import listing_sha256
from lead_trainer.data.ordered_pool import ordered_map
from lead_trainer.data.raw_json import raw_json
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.recipes.world.ingest.difficulty import difficulty_of
from lead_trainer.recipes.world.ingest.pictures import Picture, stored
from lead_trainer.recipes.world.ingest.processed_tree import ACTIONS, IMAGES, METADATA
from lead_trainer.recipes.world.ingest.scenes import SPLITS, Scene, SceneSource
from lead_trainer.recipes.world.ingest.sources import FOLDERS, kind_of, open_source
from lead_trainer.recipes.world.prepare_keys import WorldKeys, data_keys_of

MARK, UNFINISHED = "prepared.json", ".unfinished"
THREADS = max(2, os.cpu_count() or 1)
LAYOUT_VERSION = 1


@dataclass(frozen=True)
class Prepared:
    """What a command did."""

    output: Path
    written: tuple[str, ...]  # routes
    kept: tuple[str, ...]  # that were there
    left_out: tuple[RouteVerdict, ...]

    def __str__(self) -> str:
        """Returns the sentence for people."""
        if not self.written:
            return f"{self.output}: nothing to do, {len(self.kept)} scenes are there"
        counts = ", ".join(
            f"{sum(route.startswith(f'{split}/') for route in self.written)} {split}" for split in SPLITS
        )
        left = "".join(f"; left out: {verdict.route} ({verdict.reason})" for verdict in self.left_out)
        return f"{self.output}: {len(self.written)} scenes written ({counts}), {len(self.kept)} were there{left}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the guide's flags, and one for each key of the preparation."""
    parser.add_argument("--dataset", choices=("nuscenes", "carla"), required=True)
    parser.add_argument("--data-root", type=Path, required=True, help="the raw tree")
    parser.add_argument("--output", type=Path, help="default: processed/<dataset> beside the raw tree")
    parser.add_argument("--version", default="", help="of nuScenes: v1.0-mini or v1.0-trainval; default: what is there")
    parser.add_argument("--camera", default="CAM_FRONT")
    parser.add_argument("--frames", choices=("keyframes", "sweeps"), default="keyframes")
    parser.add_argument("--image-size", type=int, nargs=2, default=(256, 256), metavar=("HEIGHT", "WIDTH"))
    parser.add_argument("--crop", choices=("none", "centre"), default="none")
    parser.add_argument("--split", choices=("auto", "official", "seeded"), default="auto")
    parser.add_argument("--val-share", type=float, default=0.2)
    parser.add_argument("--split-seed", type=int, default=0)


def run(options: argparse.Namespace) -> str:
    """Prepares what the command line names; raises BadConfig or BadData."""
    flags = ("dataset", "version", "camera", "frames", "crop", "split", "val_share", "split_seed")
    section = {name: getattr(options, name) for name in flags} | {"image_size": list(options.image_size)}
    output = options.output or options.data_root.parent / "processed" / options.dataset
    if not options.data_root.is_dir():
        raise BadConfig(f"--data-root: folder {options.data_root} does not exist; name the folder of the raw data")
    return str(prepare(FolderTree(options.data_root, links_may_leave=True), section, output))


def prepare(tree: SourceTree, section: Mapping[str, Any], output: Path) -> Prepared:
    """Writes what is missing of the processed tree; `section` are the config's keys of `data`.

    Raises BadConfig where `output` holds another tree, BadData for a file that cannot be used.
    """
    keys = WorldKeys.of(data_keys_of({"data": section}))
    source = open_source(tree, keys)
    if not source.scenes:
        reasons = sorted({verdict.reason for verdict in source.verdicts})
        raise BadConfig(
            f"--data-root: found no usable scene of {keys.dataset} ({', '.join(reasons) or 'none at all'}); correct "
            f"the folder, or --dataset: {_kind(tree)}"
        )
    _mark_output(output, tree, keys)
    written, kept = [], []
    for route, scene in sorted(source.scenes.items()):
        if (output / route).is_dir():
            kept.append(route)
            continue
        _write_scene(tree, source, scene, keys, output)
        written.append(route)
    shutil.rmtree(output / UNFINISHED, ignore_errors=True)
    left_out = tuple(verdict for verdict in source.verdicts if not verdict.kept)
    return Prepared(output, tuple(written), tuple(kept), left_out)


def _kind(tree: SourceTree) -> str:
    try:
        return f"this is a tree of {kind_of(tree)}"
    except BadData as error:
        return str(error)


def _mark_output(output: Path, tree: SourceTree, keys: WorldKeys) -> None:
    """Writes what the tree is made of, or checks that it is what is there."""
    files = [file for file in tree.files() if file.path.startswith(FOLDERS[keys.dataset])]
    stated = {"version": LAYOUT_VERSION, "source_sha256": listing_sha256(files), "data": keys.as_mapping()}
    mark = output / MARK
    if mark.is_file():
        try:
            found = raw_json(mark.read_bytes())
        except ValueError as error:
            raise BadConfig(f"{mark} is not JSON: {error}; choose another --output, or delete {output}") from error
        if found != stated:
            raise BadConfig(f"{output} was prepared {_unlike(found, stated)}; choose another --output, or delete it")
        return
    if output.is_dir() and any(output.iterdir()):
        raise BadConfig(f"{output} is not empty and has no {MARK}; choose another --output, or delete it")
    output.mkdir(parents=True, exist_ok=True)
    mark.write_text(json.dumps(stated, indent=2) + "\n", encoding="utf-8")


def _unlike(found: Any, stated: Mapping[str, Any]) -> str:
    if not isinstance(found, dict) or not isinstance(found.get("data"), dict):
        return "by another program"
    keys = [key for key, value in stated["data"].items() if found["data"].get(key) != value]
    if keys:
        return "with " + ", ".join(f"{key} {found['data'].get(key)!r}, not {stated['data'][key]!r}" for key in keys)
    return "from other files: the raw tree has changed since"


def _write_scene(tree: SourceTree, source: SceneSource, scene: Scene, keys: WorldKeys, output: Path) -> None:
    actions, stated = source.actions(scene), source.difficulty(scene)
    part = output / UNFINISHED / scene.name
    shutil.rmtree(part, ignore_errors=True)
    (part / IMAGES).mkdir(parents=True)

    def picture(number: int) -> Picture:
        path = scene.files[number]
        jpeg, shown = stored(tree.read(path), path, keys.image_size, keys.crop)
        (part / IMAGES / f"{number:03d}.jpg").write_bytes(jpeg)
        return shown

    difficulty = difficulty_of(ordered_map(picture, range(len(scene.files)), THREADS))
    metadata = {
        "scene": scene.name,
        "split": scene.split,
        "location": scene.location,
        "fps": scene.fps,
        "timestamps": scene.timestamps.tolist(),
        "action_source": actions.source,
        "difficulty": difficulty if stated is None else stated,
    }
    values = io.BytesIO()
    np.save(values, actions.values)
    (part / ACTIONS).write_bytes(values.getvalue())
    (part / METADATA).write_text(json.dumps(metadata) + "\n", encoding="utf-8")
    (output / scene.split).mkdir(exist_ok=True)
    part.rename(output / scene.route)
