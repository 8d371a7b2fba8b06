"""`lead buckets`, `lead cache`: a dataset before training."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lead_trainer.building import RawTree
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.errors import BadConfig
from lead_trainer.local_job import build_cache, cache_store, dataset_runs
from lead_trainer.local_run import LocalRun, local_run
from lead_trainer.recipes.local_runs import WritesBuckets, collections_of, refuse_missing_source, source_root
from lead_trainer.recipes.recipe import Scan
from lead_trainer.report.console import open_log


def build_local_cache(
    words: Sequence[str], config_files: Sequence[Path], collections: Sequence[str], environ: Mapping[str, str]
) -> None:
    """Builds a cache, or what is missing of it, and prints its digest."""
    open_log()
    run = _dataset_run(words, config_files, environ)
    store = cache_store(run, environ)
    assert store is not None
    for part in dataset_runs(run).values():
        print(build_cache(part, store, collections))


def show_buckets(
    words: Sequence[str], config_files: Sequence[Path], environ: Mapping[str, str], *, write: bool = False
) -> None:
    """Prints a dataset's routes by verdict and its collection's buckets, without building a cache.

    With `write` they are also written for the program that the recipe's runs come from.
    """
    for run in dataset_runs(_dataset_run(words, config_files, environ)).values():
        writer = run.recipe
        if not write:
            _show_buckets(run)
        elif isinstance(writer, WritesBuckets):
            for file in writer.write_buckets(run.config, _show_buckets(run)):
                print(file)
        else:
            raise BadConfig(f"--write: recipe {run.recipe.name} has no bucket files of another program")


def _show_buckets(run: LocalRun) -> Scan:
    preparation = run.recipe.preparation
    names = collections_of(run.recipe, run.config)
    refuse_missing_source(run.recipe, run.config)
    root = str(source_root(run.recipe, run.config))
    keys = preparation.config_keys({**run.values, **({"preset": run.keys.preset} if run.keys.preset else {})})
    scan = preparation.scan(RawTree(FolderTree(Path(root), links_may_leave=True)), keys, names)
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


def _dataset_run(words: Sequence[str], config_files: Sequence[Path], environ: Mapping[str, str]) -> LocalRun:
    run = local_run([*words, *([] if _names_logdir(words) else ["logdir=."])], config_files, environ)
    if run.recipe.preparation is None:
        raise BadConfig(f"recipe {run.recipe.name} reads no dataset")
    return run


def _names_logdir(words: Sequence[str]) -> bool:
    return any(word.startswith("logdir=") for word in words)
