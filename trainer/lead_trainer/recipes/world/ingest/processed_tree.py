"""The processed layout of the training guide: what `prepare_dataset` writes, or a user's own tools.

{train,val}/<scene>/images/000.jpg …   one picture a frame (.jpg or .png)
{train,val}/<scene>/actions.npy        (T-1, 4) float32
{train,val}/<scene>/metadata.json      {scene, location, fps, timestamps, action_source, difficulty}
"""

import re
from typing import Any

import numpy as np

from lead_trainer.contract.raw_data import SourceTree
from lead_trainer.data.raw_json import raw_json
from lead_trainer.errors import BadData
from lead_trainer.recipes.npz_arrays import npy_array
from lead_trainer.recipes.world.ingest.scenes import (
    ACTION_DIM,
    MAX_JSON_BYTES,
    MAX_STEP_US,
    Actions,
    Float32,
    Scene,
    SceneSource,
    field_of,
    number_of,
    refuse_large,
    sorted_out,
)

METADATA, ACTIONS, IMAGES = "metadata.json", "actions.npy", "images"
RANGES = ((-1.0, 1.0), (0.0, 1.0), (0.0, 1.0), (0.0, 1.0))  # steering, throttle, brake, gear
MIN_FPS, MAX_FPS = 1e6 / MAX_STEP_US, 1000.0
_FRAME = re.compile(r"(train|val)/([^/]+)/images/(\d{1,9})\.(jpg|png)")


class ProcessedTree(SceneSource):
    """The scenes of a processed tree; the folder decides the split."""

    def __init__(self, tree: SourceTree) -> None:
        self._tree, self._sizes = tree, {file.path: file.size for file in tree.files()}
        self._metadata: dict[str, Any] = {}
        frames: dict[tuple[str, str], dict[int, str]] = {}
        for file in tree.files():
            if found := _FRAME.fullmatch(file.path):
                split, scene, number, _ = found.groups()
                numbers = frames.setdefault((split, scene), {})
                if int(number) in numbers:
                    raise BadData(f"{file.path} and {numbers[int(number)]} are the same frame; delete one")
                numbers[int(number)] = file.path
        both = sorted({name for split, name in frames if split == "train"} & {n for s, n in frames if s == "val"})
        if both:
            raise BadData(f"scene {both[0]} is in train/ and in val/; keep it in one of them")
        found_scenes = [self._scene(split, name, files) for (split, name), files in sorted(frames.items())]
        self.scenes, self.verdicts = sorted_out(found_scenes, self._sizes)

    def actions(self, scene: Scene) -> Actions:
        """Returns the stored actions, and what the metadata say of their source."""
        source = self._metadata[scene.route].get("action_source", "recorded")
        path = f"{scene.route}/{ACTIONS}"
        if source not in ("can", "poses", "recorded"):
            raise BadData(
                f"file {scene.route}/{METADATA}: action_source: found {source!r:.40}, expected can, poses or recorded"
            )
        return Actions(read_actions(self._read(path), path, len(scene.files) - 1), source)

    def difficulty(self, scene: Scene) -> float | None:
        """Returns the difficulty of the metadata, None where they have none."""
        metadata, where = self._metadata[scene.route], f"file {scene.route}/{METADATA}"
        if metadata.get("difficulty") is None:
            return None
        return number_of(metadata, "difficulty", where)

    def _read(self, path: str) -> bytes:
        refuse_large(path, self._sizes.get(path, 0), MAX_JSON_BYTES)
        return self._tree.read(path)

    def _scene(self, split: str, name: str, files: dict[int, str]) -> Scene:
        route, path = f"{split}/{name}", f"{split}/{name}/{METADATA}"
        if sorted(files) != list(range(len(files))):
            lacking = next(number for number in range(len(files)) if number not in files)
            raise BadData(f"{route}/{IMAGES} has no picture {lacking:03d}, but later ones; number them without a gap")
        try:
            metadata = raw_json(self._read(path))
        except ValueError as error:
            raise BadData(f"file {path} is not JSON: {error}; correct it") from error
        where = f"file {path}"
        named = field_of(metadata, "scene", str, where)
        if named != name:
            raise BadData(f"{where}: scene: found {named!r}, expected {name!r}, the folder's name; correct it")
        if (stated := metadata.get("split", split)) != split:
            raise BadData(f"{where}: split: found {stated!r}, but the scene lies in {split}/; move the folder")
        self._metadata[route] = metadata
        times = _times(metadata, len(files), where)
        place = field_of({"location": "", **metadata}, "location", str, where)
        return Scene(name, split, place, tuple(files[number] for number in range(len(files))), times)


def read_actions(data: bytes, path: str, count: int) -> Float32:
    """Returns actions (count, 4) of an `.npy` file; raises BadData naming what it holds instead."""
    wanted = f"expected float32 of shape ({count}, {ACTION_DIM}): one action between two pictures"
    try:
        values = npy_array(data)
    except ValueError as error:
        raise BadData(f"file {path} cannot be read: {error}; {wanted}") from error
    if values.shape != (count, ACTION_DIM) or values.dtype != np.float32:
        raise BadData(f"file {path}: found {values.dtype} of shape {values.shape}, {wanted}; write it again")
    for column, (low, high) in enumerate(RANGES):
        outside = np.flatnonzero(~((values[:, column] >= low) & (values[:, column] <= high)))
        if len(outside):
            at = int(outside[0])
            raise BadData(
                f"file {path}: row {at}, column {column}: found {values[at, column]}, expected a number in "
                f"[{low:g}, {high:g}]; write it again"
            )
    return np.ascontiguousarray(values)


def _times(metadata: Any, count: int, where: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Returns microseconds (T,), of `timestamps` or, where there are none, of `fps`, which is checked in any case."""
    stated = metadata.get("timestamps") is not None
    if not stated or "fps" in metadata:
        fps = number_of(metadata, "fps", where)
        if not MIN_FPS <= fps <= MAX_FPS:
            raise BadData(f"{where}: fps: found {fps}, expected {MIN_FPS:g} to {MAX_FPS:g}; correct it")
    if not stated:
        return np.round(1e6 * np.arange(count) / fps).astype(np.int64)
    times = field_of(metadata, "timestamps", list, where)
    if len(times) != count or not all(type(each) is int and 0 <= each < 1 << 62 for each in times):
        raise BadData(
            f"{where}: timestamps: found {len(times)} entries, expected {count} whole numbers of microseconds, one a "
            "picture; correct it"
        )
    return np.array(times, np.int64)
