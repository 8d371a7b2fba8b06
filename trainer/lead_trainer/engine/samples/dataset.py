"""The samples of a job: from its caches, or from the recipe alone when the job names no dataset."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lead_protocol.job import TrainJob
from lead_protocol.object_keys import LOCAL_NAMESPACE
from lead_protocol.store.hedge import AsksTwice
from lead_protocol.store.object_store import ObjectStore
from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.results import returned
from lead_trainer.contract.samples import Caches, Samples
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.session_cache import SessionCache, open_session_cache
from lead_trainer.engine.samples.checked_samples import CheckedSamples
from lead_trainer.errors import BadConfig


@dataclass(frozen=True)
class Dataset:
    """Samples, and the node's copy of the shards they come from, which all caches of the job share."""

    samples: Samples
    session: SessionCache | None = None
    caches: Mapping[str, CacheReader] = field(default_factory=dict)  # what the recipe was given
    store: ObjectStore | None = None  # where the caches lie

    def counters(self) -> Mapping[str, Any]:
        """Returns the session cache's counters; for where they are reported, see `loading_figures`."""
        if self.session is None:
            return {}
        stats = self.session.stats()
        return {
            "cache_reads": stats.reads,
            "cache_first_reads": stats.first_reads,
            "cache_fetched": stats.fetched,
            "cache_fetched_bytes": stats.fetched_bytes,
            "cache_second_bytes": self.store.second_bytes if isinstance(self.store, AsksTwice) else 0,
            "cache_fetch_s": round(stats.fetch_s, 3),
            "cache_corrupt": stats.corrupt,
            "cache_degraded": stats.degraded,
        }

    def close(self) -> None:
        """Lets go of the caches' files."""
        if self.session is not None:
            self.session.close()


def open_dataset(
    job: TrainJob, recipe: Recipe[Any], config: Any, store: ObjectStore, session_cache: Path | None
) -> Dataset:
    """Returns the stage's samples; `session_cache` is the folder for shards, None for reads from the store.

    Raises BadConfig for a dataset that is named twice, BadData for a cache that is not complete.
    """
    session = (
        open_session_cache(config.session_cache_backend, store, session_cache, job.session_cache_bytes)
        if job.datasets
        else None
    )
    return dataset_over(job, recipe, config, store, session)


def dataset_over(
    job: TrainJob, recipe: Recipe[Any], config: Any, store: ObjectStore, session: SessionCache | None
) -> Dataset:
    """Like `open_dataset`, over a session cache that is open already; None where the job names no dataset."""
    names = [dataset.name for dataset in job.datasets]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise BadConfig(f"datasets: {twice[0]} is named twice; name each cache once")
    if not names:
        return Dataset(checked_samples(recipe, config, {}))
    namespace = job.owner.namespace
    caches = {
        d.name: CacheReader(
            store,
            d.digest,
            session,
            namespace=namespace,
            manifest_sha256=d.manifest_sha256,
            name=d.name if namespace != LOCAL_NAMESPACE else "",
        )
        for d in job.datasets
    }
    return Dataset(checked_samples(recipe, config, caches), session, caches, store)


def checked_samples(recipe: Recipe[Any], config: Any, caches: Caches) -> Samples:
    """Returns a recipe's training samples; raises BadPart for what is none, and where one of their results is none."""
    found: Samples = returned(recipe.name, "samples", recipe.samples(config, caches), Samples)
    return CheckedSamples(recipe.name, "samples", found)
