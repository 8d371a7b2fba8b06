"""Where the raw data of recipe `lead` lie on one machine, and which caches are built of them."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lead_trainer.contract.config_values import as_arguments
from lead_trainer.contract.raw_data import Scan
from lead_trainer.contract.trees import BucketFiles, Trees
from lead_trainer.recipes.lead.bucket_files import bucket_file_fault, write_bucket_files
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.data_sources import CARLA, SOURCES, DataSource
from lead_trainer.recipes.lead.dataset import collection_of, stage_collections
from lead_trainer.recipes.lead.ingest.route_tree import TREE_FOLDER
from lead_trainer.recipes.lead.preparation import SOURCE_KEY
from lead_trainer.recipes.lead.stage_rows import shared_values


def source_of(config: LeadConfig) -> DataSource:
    """Returns the data set of a cache with this config, the first in use where it names none."""
    return next((source for source in SOURCES if source.name == config.source_dataset), config.sources[0])


def datasets(config: LeadConfig) -> Mapping[str, Mapping[str, Any]]:
    """Returns a cache for each data set in use."""
    if len(config.sources) == 1:
        return {"local": {}}
    return {source.name: {SOURCE_KEY: source.name} for source in config.sources}


def source_root(config: LeadConfig) -> str:
    """Returns the folder of the data set that a cache with this config is built from, of the first one in a mix."""
    return str(getattr(config, source_of(config).root_key))


def layout_fault(config: LeadConfig, root: Path) -> str:
    """Returns what to name instead of a folder of CARLA data that has no folder `data`."""
    if source_of(config) is not CARLA or (root / TREE_FOLDER).is_dir():
        return ""
    near = [folder for folder in (*sorted(root.iterdir()), root.parent) if (folder / TREE_FOLDER).is_dir()]
    asked = f"; did you mean {as_arguments({CARLA.root_key: str(near[0])})}?" if near else ""
    return f"{root} has no folder {TREE_FOLDER}/{asked or ', which holds the scenarios of a CARLA dataset'}"


def collections(config: LeadConfig) -> Sequence[str]:
    """Returns the stage's bucket collection of that data set."""
    return [collection_of(config, source_of(config))]


def cache_collections(config: LeadConfig) -> Sequence[str]:
    """Returns the collections of both stages, of CARLA alone with and without Town13: they share their samples."""
    return stage_collections(config, source_of(config))


def cache_values(config: LeadConfig, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the values of the cache that serves every horizon of the planner over this tree."""
    return shared_values(config, values, collection_of(config, source_of(config)))


def bucket_files_fault(config: LeadConfig, collections: Sequence[str]) -> str:
    """Returns why LEAD reads no bucket file of these collections with this config, empty where it does."""
    if source_of(config) is not CARLA:
        return f"{SOURCE_KEY}: found {source_of(config).name}; LEAD has bucket files of CARLA data alone"
    return next(filter(None, (bucket_file_fault(name, config) for name in collections)), "")


def write_buckets(config: LeadConfig, scan: Scan) -> Iterable[Path]:
    """Writes LEAD's bucket files of a scan of CARLA data into `carla_root`; yields where they are."""
    return write_bucket_files(scan, config, Path(config.carla_root))


TREES = Trees[LeadConfig](
    root=source_root,
    collections=collections,
    layout_fault=layout_fault,
    cache_collections=cache_collections,
    cache_values=cache_values,
    datasets=datasets,
    bucket_files=BucketFiles(fault=bucket_files_fault, write=write_buckets),
)
