"""`lead buckets`: which routes and frames the collections of a dataset hold."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from lead_trainer.building import RawTree
from lead_trainer.contract.raw_data import Scan
from lead_trainer.contract.trees import BucketFiles
from lead_trainer.data.preparation_results import config_keys, scanned
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.errors import BadConfig
from lead_trainer.local.job import dataset_runs
from lead_trainer.local.run import LocalRun, dataset_run
from lead_trainer.recipes.local_runs import collections_of, refuse_missing_source, source_root


def show_buckets(
    arguments: Sequence[str],
    config: Sequence[Path],
    collection: Sequence[str],
    environ: Mapping[str, str],
    *,
    write: bool = False,
) -> None:
    """Prints a dataset's routes by verdict and the buckets of its collections, without building a cache.

    With `write` they are also written for the program that the recipe's runs come from; of a mix, the data sets that
    it has such files of.
    """
    parts = dataset_runs(dataset_run(arguments, config, environ))
    named = {name: list(collection) or collections_of(run.recipe, run.config) for name, run in parts.items()}
    if not write:
        for name, run in parts.items():
            _show_buckets(run, named[name])
        return
    writers = {name: _writer(run) for name, run in parts.items()}
    faults = {name: writer.fault(parts[name].config, named[name]) for name, writer in writers.items()}
    if all(faults.values()):
        raise BadConfig(f"--write: {next(iter(faults.values()))}")
    for name, run in parts.items():
        if faults[name]:
            print(f"--write: {faults[name]}", file=sys.stderr)
            continue
        for file in writers[name].write(run.config, _show_buckets(run, named[name])):
            print(file)


def _writer(run: LocalRun) -> BucketFiles[Any]:
    if run.recipe.trees.bucket_files is not None:
        return run.recipe.trees.bucket_files
    raise BadConfig(f"--write: recipe {run.recipe.name} has no bucket files of another program")


def _show_buckets(run: LocalRun, names: Sequence[str]) -> Scan:
    refuse_missing_source(run.recipe, run.config)
    root = str(source_root(run.recipe, run.config))
    keys = config_keys(run.recipe, {**run.values, **({"preset": run.keys.preset} if run.keys.preset else {})})
    scan = scanned(run.recipe, RawTree(FolderTree(Path(root), links_may_leave=True)), keys, names)
    verdicts = Table("verdict", "routes", "frames", title=f"routes of {root}", title_justify="left")
    for reason in sorted({verdict.reason for verdict in scan.verdicts}):
        of_it = [verdict for verdict in scan.verdicts if verdict.reason == reason]
        verdicts.add_row(reason, str(len(of_it)), str(sum(verdict.frames for verdict in of_it)))
    buckets = Table("collection", "bucket", "samples", "drawn an epoch")
    for collection in scan.collections:
        for bucket, factor in zip(collection.buckets, collection.mixture, strict=True):
            count = len(bucket.samples)
            buckets.add_row(collection.name, bucket.name, str(count), str(int(count * factor)))
    console = Console()
    console.print(verdicts)
    console.print(buckets)
    return scan
