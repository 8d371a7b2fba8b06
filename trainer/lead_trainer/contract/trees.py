"""What a recipe defines about raw data for runs without a cluster, where one command builds the cache and trains."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

from lead_trainer.contract.checked_parts import checked_parts
from lead_trainer.contract.raw_data import Scan
from lead_trainer.contract.step import ConfigT


@checked_parts
@dataclass(frozen=True, kw_only=True)
class BucketFiles(Generic[ConfigT]):
    """Files beside a raw tree from which another program loads collections."""

    #: Why that program reads no file of these collections with this config, empty where it does.
    fault: Callable[[ConfigT, Sequence[str]], str]
    #: Writes a file for each collection of a scan, as that program names it; yields where they are.
    write: Callable[[ConfigT, Scan], Iterable[Path]]


@checked_parts
@dataclass(frozen=True, kw_only=True)
class Trees(Generic[ConfigT]):
    """Where raw trees lie on this machine, and which caches are built of them."""

    #: The raw tree's folder, None where the config needs no data; raises BadConfig where it is not set.
    root: Callable[[ConfigT], str | None] | None = None
    #: The collections that a run reads; default: the preparation's.
    collections: Callable[[ConfigT], Sequence[str]] | None = None
    #: What an existing folder lacks of a raw tree and what to do, empty for nothing.
    layout_fault: Callable[[ConfigT, Path], str] = lambda config, root: ""
    #: What a cache on this machine holds, where one serves several stages; default: what a run reads.
    cache_collections: Callable[[ConfigT], Sequence[str]] | None = None
    #: The keys that such a cache is built with, of a run's (config, given keys).
    cache_values: Callable[[ConfigT, Mapping[str, Any]], Mapping[str, Any]] = lambda config, values: values
    #: The keys that make the config of each tree's cache out of the run's, by the tree's name, where there are several.
    datasets: Callable[[ConfigT], Mapping[str, Mapping[str, Any]]] = lambda config: {"local": {}}
    #: Bucket files of another program, for `lead buckets --write`.
    bucket_files: BucketFiles[ConfigT] | None = None
