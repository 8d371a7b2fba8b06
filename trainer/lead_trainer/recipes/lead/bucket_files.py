"""LEAD's bucket files: the collections of a tree as LEAD's own code loads them, written on request and never read here.

A file is an xz pickle, whatever its suffix: the collection's counters, and for each bucket an object of LEAD's class
whose arrays hold the paths of each row's files. These paths begin with `carla_root` as given, so LEAD finds them
where it runs in the folder that `carla_root` is relative to. Facts: autonomousvision/lead,
`lead/training/data_loader/buckets` (2025-12).
"""

import lzma
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lead_trainer.contract.raw_data import Bucket, Collection, SampleKey, Scan
from lead_trainer.recipes.lead.buckets import stage_of
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.data_sources import NAVSIM, WAYMO
from lead_trainer.recipes.lead.dataset import collection_of
from lead_trainer.recipes.lead.ingest.pickle_writer import LeadObject, pickled
from lead_trainer.recipes.lead.sim2real_buckets import MINED

BUCKETS_FOLDER = "buckets"
_BUCKET = ("lead.training.data_loader.buckets.bucket", "Bucket")
_CONFIG = ("lead.training.config_training", "TrainingConfig")
_COLUMNS = {  # of a bucket, in the order of LEAD's class -> folder and suffix of the files
    "bev_3rd_person_images": ("3rd_person", "jpg"),
    "images": ("rgb", "jpg"),
    "images_perturbated": ("rgb_perturbated", "jpg"),
    "semantics": ("semantics", "png"),
    "semantics_perturbated": ("semantics_perturbated", "png"),
    "hdmap": ("hdmap", "png"),
    "hdmap_perturbated": ("hdmap_perturbated", "png"),
    "depth": ("depth", "png"),
    "depth_perturbated": ("depth_perturbated", "png"),
    "lidars": ("lidar", "laz"),
    "radars": ("radar", "npz"),
    "radars_perturbated": ("radar_perturbated", "npz"),
    "bboxes": ("bboxes", "pkl"),
    "metas": ("metas", "pkl"),
}


def bucket_file_name(collection: str, config: LeadConfig) -> str:
    """Returns what LEAD calls the file of a collection."""
    pretrain = stage_of(collection) == "pretrain"
    first = config.skip_first_pretrain if pretrain else config.skip_first_posttrain
    last = config.skip_last_pretrain if pretrain else config.skip_last_posttrain
    numbers = f"{config.num_way_points_prediction}_{first}_{last}_{config.waypoints_spacing}"
    if collection in MINED:
        return f"{collection.partition('_')[0]}_{numbers}.gz"
    return f"{collection}_buckets.gz" if pretrain else f"{collection}_buckets_{numbers}.gz"


def bucket_file_fault(collection: str, config: LeadConfig) -> str:
    """Returns why LEAD reads no file of a collection with this config, empty where it does."""
    if collection not in MINED:
        return ""
    kind, _, stage = collection.partition("_")
    if collection_of(config).partition("_")[0] != kind:
        switch = (WAYMO if kind == "waymo" else NAVSIM).use_key
        return f"{collection}: LEAD draws from it only beside real data; set {switch}=true too"
    if (kind, stage) == ("waymo", "posttrain"):
        return (
            f"{collection}: LEAD has no such file; where it posttrains on CARLA and Waymo, its code ends with "
            "'Unknown target dataset' (skip_last)"
        )
    return ""


def write_bucket_files(scan: Scan, config: LeadConfig, root: Path) -> Iterator[Path]:
    """Writes the collections of a scan below `root`, which is `carla_root`, in place of files of the same names."""
    for collection in scan.collections:
        target = root / BUCKETS_FOLDER / bucket_file_name(collection.name, config)
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.part")
        packer = lzma.LZMACompressor()
        with part.open("wb") as file:
            for piece in pickled(_content(collection, scan.samples, config)):
                file.write(packer.compress(piece))
            file.write(packer.flush())
        part.replace(target)
        yield target


def _content(collection: Collection, samples: Sequence[SampleKey], config: LeadConfig) -> dict[str, object]:
    given = {"carla_root": config.carla_root, "use_planning_decoder": stage_of(collection.name) == "posttrain"}
    made_with = LeadObject(*_CONFIG, {**given, "_loaded_config": given})
    buckets = [_bucket(bucket, samples, made_with, config.carla_root) for bucket in collection.buckets]
    return {"buckets": buckets, **collection.counters}


def _bucket(bucket: Bucket, samples: Sequence[SampleKey], made_with: LeadObject, root: str) -> LeadObject:
    keys = [samples[position] for position in bucket.samples]
    routes = [f"{root.rstrip('/')}/{key.route}" for key in keys]
    frames = np.array([key.frame for key in keys], np.int64)
    columns = {
        name: _texts([f"{route}/{folder}/{key.frame:04d}.{suffix}" for route, key in zip(routes, keys, strict=True)])
        for name, (folder, suffix) in _COLUMNS.items()
    }
    numbers = {"sample_start": frames, "route_dirs": _texts(routes), "route_indices": frames}
    order = {"global_indices": np.arange(len(keys), dtype=np.int64), "global_index": len(keys)}
    return LeadObject(*_BUCKET, {"config": made_with, **columns, **numbers, **order})


def _texts(texts: Sequence[str]) -> npt.NDArray[np.bytes_]:
    return np.array([text.encode() for text in texts], np.bytes_)
