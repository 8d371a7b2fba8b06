"""How frames of the Waymo Open Dataset for end-to-end driving, as LEAD unpacks them, become cache records.

    <sequence>/<folder>/<frame>.jpg        the stitched cameras
    <sequence>/<folder>/<frame>.json.gz    past {x, y, vx, vy} at 4 Hz, command 0..3, and, but in the test split,
                                           prediction {x, y}: 5 s at 4 Hz; where raters judged the frame, preferences:
                                           three of {pos_x, pos_y, preference_score}

A record holds `image` and `arrays` (past (T, 4), command, future (M, 2), of a judged frame also rated (3, 20, 2)
and ratings (3)). Frames stay Waymo's (y to the left) until samples are loaded. Format: LEAD's
lead/data_loader/waymo_e2e_dataset.py.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lead_trainer.contract.raw_data import SampleKey, Scan, SourceTree
from lead_trainer.data.array_block import pack_arrays
from lead_trainer.data.raw_json import raw_json
from lead_trainer.errors import BadData
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.ingest.torch_pickle import decompress
from lead_trainer.recipes.lead.prepare_paired import Pair, fitted_jpeg, frame_table, pairs_by_sequence, scan_pairs

PICTURE, MEASUREMENT = ".jpg", ".json.gz"
PAST = ("x", "y", "vx", "vy")
COMMANDS = 4
RATED = 3  # trajectories of a judged frame
RATED_STEPS = 20  # of each, at 4 Hz


class WaymoPreparation:
    """Waymo-E2E's preparation; pure in (tree, keys)."""

    def keys(self, config: LeadConfig) -> Mapping[str, Any]:
        """Returns the size that pictures are scaled to."""
        return {"image_height": config.image_height, "image_width": config.image_width}

    def scan(self, tree: SourceTree, config: Mapping[str, Any], collections: Sequence[str]) -> Scan:
        """Returns every frame of every sequence."""
        return scan_pairs(frames_of(cast(Any, tree)), collections, f"pairs of {PICTURE} and {MEASUREMENT} of Waymo-E2E")

    def record(self, tree: SourceTree, config: Mapping[str, Any], sample: SampleKey) -> Mapping[str, bytes]:
        """Returns picture and numbers of one frame; raises BadData naming the file."""
        picture, measurement = frames_of(cast(Any, tree))[sample.route][sample.frame]
        image = tree.read(picture.path)
        return {
            "image": fitted_jpeg(image, config["image_height"], config["image_width"], picture.path),
            "arrays": pack_arrays(measured(tree.read(measurement.path), measurement.path), compress=False),
        }

    def route_metas(self, tree: SourceTree, config: Mapping[str, Any], route: str, frames: Sequence[int]) -> pa.Table:
        """Returns the frame numbers alone."""
        return frame_table(frames)


@lru_cache(maxsize=2)  # a tree is hashed by identity, and its listing does not change
def frames_of(tree: Any) -> dict[str, list[Pair]]:
    """Returns the file pairs of each sequence; raises BadData for a picture without measurement or the other way.

    Pictures and measurements of a sequence lie side by side or in two folders.
    """
    files = tree.files()
    folders = [
        {file.path.rpartition("/")[0] for file in files if file.path.endswith(s)} for s in (PICTURE, MEASUREMENT)
    ]
    up = 1 if folders[0] == folders[1] else 2

    def named(path: str, suffix: str) -> tuple[str, str] | None:
        parts = path.split("/")
        return ("/".join(parts[:-up]) or ".", parts[-1].removesuffix(suffix)) if path.endswith(suffix) else None

    return pairs_by_sequence(files, lambda path: named(path, PICTURE), lambda path: named(path, MEASUREMENT))


def measured(data: bytes, path: str) -> dict[str, npt.NDArray[Any]]:
    """Returns the numbers of one frame; raises BadData naming the file where it is no measurement."""
    try:
        document = raw_json(decompress(data))
        past = np.stack([np.asarray(document["past"][name], np.float64) for name in PAST], axis=1)
        future = document.get("prediction")
        points = np.zeros((0, 2)) if future is None else np.stack([np.asarray(future[a], np.float64) for a in "xy"], 1)
        command = int(document["command"])
        rated = _rated(document.get("preferences") or [])
    except (OSError, EOFError, ValueError, LookupError, TypeError) as error:
        raise BadData(f"file {path} is not a measurement of Waymo-E2E ({error!r}); unpack the frame again") from error
    if (
        past.ndim != 2
        or not len(past)
        or points.ndim != 2
        or not np.isfinite(past).all()
        or not np.isfinite(points).all()
        or not all(np.isfinite(array).all() for array in rated.values())
    ):
        raise BadData(f"file {path}: past has shape {past.shape}, prediction {points.shape}; expected finite points")
    if not 0 <= command < COMMANDS:
        raise BadData(f"file {path}: command {command}, expected 0..{COMMANDS - 1}")
    return {"past": past, "command": np.array(command), "future": points, **rated}


def _rated(preferences: Sequence[Mapping[str, Any]]) -> dict[str, npt.NDArray[np.float64]]:
    """Returns the rated trajectories and their ratings, nothing for a frame that nobody judged.

    As in Waymo's score, a shorter trajectory stands still at its end, and the last one stands in for missing ones.
    """
    judged = [one for one in preferences if one["preference_score"] >= 0][:RATED]
    if not judged:
        return {}
    judged += judged[-1:] * (RATED - len(judged))
    paths = [np.stack([np.asarray(one[name], np.float64) for name in ("pos_x", "pos_y")], 1) for one in judged]
    held = [path[np.minimum(np.arange(RATED_STEPS), len(path) - 1)] for path in paths]
    return {"rated": np.stack(held), "ratings": np.array([one["preference_score"] for one in judged], np.float64)}
