"""The samples of a job: from its cache, or from the recipe alone when the job names no dataset."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lead_protocol.job import TrainJob
from lead_protocol.store.object_store import ObjectStore
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.session_cache import open_session_cache
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.recipe import Recipe, SampleSource

SESSION_CACHE_BACKEND = "packed"


@dataclass(frozen=True)
class Dataset:
    """Samples, and the cache they come from if there is one."""

    samples: SampleSource
    cache: CacheReader | None

    def counters(self) -> Mapping[str, Any]:
        """Returns the session cache's counters under the names of the progress record."""
        if self.cache is None:
            return {}
        stats = self.cache.stats()
        return {"cache_hits": stats.hits, "cache_misses": stats.misses, "cache_degraded": stats.degraded}

    def close(self) -> None:
        """Lets go of the cache's files."""
        if self.cache is not None:
            self.cache.close()


def open_dataset(job: TrainJob, recipe: Recipe, config: Any, store: ObjectStore, session_cache: Path | None) -> Dataset:
    """Returns the stage's samples; raises BadConfig for several datasets, BadData for a cache that is not complete."""
    if not job.datasets:
        return Dataset(recipe.samples(config, None), None)
    if len(job.datasets) > 1:
        names = ", ".join(dataset.name for dataset in job.datasets)
        raise BadConfig(f"datasets are {names}, but recipe {recipe.name!r} trains on one; name one cache")
    local = open_session_cache(SESSION_CACHE_BACKEND, store, session_cache, job.session_cache_bytes)
    cache = CacheReader(store, job.datasets[0].digest, local)
    return Dataset(recipe.samples(config, cache), cache)
