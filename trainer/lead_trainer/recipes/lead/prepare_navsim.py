"""How a NavSim feature cache, as LEAD trains on it, becomes cache records.

    <log>/<token>/transfuser_feature.gz   camera_feature: JPEG bytes of the stitched cameras; status_feature (8,)
    <log>/<token>/transfuser_target.gz    trajectory (8, 3), agent_states (30, 5), agent_labels (30,), bev_semantic_map

A record holds `image`, `planes` (BEV map, turned so that rows run along y and columns along x) and `arrays`
(trajectory, status, boxes of the valid agents). Frames and angles stay NavSim's (y to the left) until samples are
loaded. Formats: navsim/agents/transfuser/transfuser_features.py and LEAD's lead/data_loader/navsim_dataset.py.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lead_trainer.contract.raw_data import SampleKey, Scan, SourceTree
from lead_trainer.data.array_block import pack_arrays
from lead_trainer.errors import BadData
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.data_sources import NAVSIM_BEV_CLASSES
from lead_trainer.recipes.lead.ingest.torch_pickle import read_gzip_pickle
from lead_trainer.recipes.lead.prepare_paired import Pair, fitted_jpeg, frame_table, pairs_by_sequence, scan_pairs

FEATURE, TARGET = "transfuser_feature.gz", "transfuser_target.gz"
STATUS_NUMBERS = 8  # command (4), velocity (2), acceleration (2)
BOX_NUMBERS = 5  # x, y, heading, length, width


class NavsimPreparation:
    """NavSim's preparation; pure in (tree, keys)."""

    def keys(self, config: LeadConfig) -> Mapping[str, Any]:
        """Returns the size that pictures are scaled to."""
        return {"image_height": config.image_height, "image_width": config.image_width}

    def scan(self, tree: SourceTree, config: Mapping[str, Any], collections: Sequence[str]) -> Scan:
        """Returns every token of every log."""
        return scan_pairs(tokens(cast(Any, tree)), collections, f"{FEATURE} of NavSim")

    def record(self, tree: SourceTree, config: Mapping[str, Any], sample: SampleKey) -> Mapping[str, bytes]:
        """Returns picture, BEV map and numbers of one token; raises BadData naming the file."""
        feature_file, target_file = tokens(cast(Any, tree))[sample.route][sample.frame]
        feature = _fields(tree, feature_file.path, ("camera_feature", "status_feature"))
        target = _fields(tree, target_file.path, ("trajectory", "agent_states", "agent_labels", "bev_semantic_map"))
        status = _array(feature, "status_feature", (STATUS_NUMBERS,), feature_file.path)
        trajectory = _array(target, "trajectory", (None, 3), target_file.path)
        boxes = _array(target, "agent_states", (None, BOX_NUMBERS), target_file.path)
        valid = np.asarray(target["agent_labels"], bool)
        if valid.shape != (len(boxes),):
            raise BadData(f"file {target_file.path}: {len(boxes)} agent_states, but {valid.shape} agent_labels")
        jpeg = np.asarray(bytearray(feature["camera_feature"]) if isinstance(feature["camera_feature"], bytes)
                          else feature["camera_feature"], np.uint8).tobytes()  # fmt: skip
        arrays = {
            "trajectory": trajectory.astype(np.float64),
            "status": status.astype(np.float32),
            "boxes": boxes[valid].astype(np.float32),
        }
        return {
            "image": fitted_jpeg(jpeg, config["image_height"], config["image_width"], feature_file.path),
            "planes": pack_arrays({"bev_semantic": _bev_map(target, target_file.path)}, compress=True),
            "arrays": pack_arrays(arrays, compress=False),
        }

    def route_metas(self, tree: SourceTree, config: Mapping[str, Any], route: str, frames: Sequence[int]) -> pa.Table:
        """Returns the frame numbers alone."""
        return frame_table(frames)


@lru_cache(maxsize=2)  # a tree is hashed by identity, and its listing does not change
def tokens(tree: Any) -> dict[str, list[Pair]]:
    """Returns the file pairs of each log; raises BadData for a feature without target or the other way round."""

    def named(path: str, name: str) -> tuple[str, str] | None:
        folders = path.split("/")
        return ("/".join(folders[:-2]) or ".", folders[-2]) if folders[-1] == name and len(folders) > 1 else None

    return pairs_by_sequence(tree.files(), lambda path: named(path, FEATURE), lambda path: named(path, TARGET))


def _fields(tree: SourceTree, path: str, names: Sequence[str]) -> Mapping[str, Any]:
    content = read_gzip_pickle(tree.read(path), path)
    missing = [name for name in names if not isinstance(content, dict) or name not in content]
    if missing:
        raise BadData(f"file {path} has no {missing[0]}; make NavSim's feature cache again")
    return dict(content)


def _array(content: Mapping[str, Any], name: str, shape: tuple[int | None, ...], path: str) -> npt.NDArray[Any]:
    array = np.asarray(content[name])
    fits = array.ndim == len(shape) and all(want in (None, have) for want, have in zip(shape, array.shape, strict=True))
    if not fits or not np.issubdtype(array.dtype, np.number) or not np.isfinite(array).all():
        wanted = " x ".join("n" if size is None else str(size) for size in shape)
        raise BadData(f"file {path}: {name} has shape {array.shape} of {array.dtype}, expected {wanted} finite numbers")
    return array


def _bev_map(target: Mapping[str, Any], path: str) -> npt.NDArray[np.uint8]:
    """Returns the map turned by 90 degrees against the clock, as LEAD does to align it with CARLA's grid."""
    grid = _array(target, "bev_semantic_map", (None, None), path)
    if grid.size == 0 or grid.min() < 0 or grid.max() >= NAVSIM_BEV_CLASSES:
        raise BadData(f"file {path}: bev_semantic_map holds classes beyond 0..{NAVSIM_BEV_CLASSES - 1}")
    return np.ascontiguousarray(np.rot90(grid.astype(np.uint8), 1))
