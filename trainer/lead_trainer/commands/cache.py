"""`lead cache`: the cache of a dataset, built before training."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from lead_trainer.local.job import build_cache, cache_store, dataset_runs
from lead_trainer.local.run import dataset_run
from lead_trainer.report.console import open_log


def build_local_cache(
    arguments: Sequence[str], config: Sequence[Path], collection: Sequence[str], environ: Mapping[str, str]
) -> None:
    """Builds a cache, or what is missing of it, and prints its digest."""
    open_log()
    run = dataset_run(arguments, config, environ)
    store = cache_store(run, environ)
    assert store is not None
    for part in dataset_runs(run).values():
        print(build_cache(part, store, collection))
