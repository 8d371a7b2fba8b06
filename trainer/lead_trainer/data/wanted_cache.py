"""Which cache a build makes: its digest follows from the files, the recipe's keys and the collections."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lead_protocol.cache_digest import cache_digest
from lead_protocol.job import BuildJob
from lead_protocol.manifests import CacheManifest
from lead_protocol.object_keys import CacheKeys
from lead_protocol.store.object_store import ObjectStore
from lead_trainer.contract.raw_data import SourceFile
from lead_trainer.contract.recipe import Recipe
from lead_trainer.data.digest import listing_sha256
from lead_trainer.data.held_caches import held_by_another
from lead_trainer.data.preparation_results import config_keys
from lead_trainer.data.stored_manifest import stored_manifest
from lead_trainer.errors import BadData


@dataclass(frozen=True)
class WantedCache:
    """What a build makes."""

    job: BuildJob
    config: Mapping[str, Any]  # the values that the preparation reads
    source_sha256: str  # of the listing
    digest: str

    def made(self, store: ObjectStore, *, takes_another: bool) -> CacheManifest | None:
        """Returns the manifest where the cache is published, or staged by this build.

        With `takes_another` also that of a published cache that holds more collections.
        """
        keys = self.keys
        made = stored_manifest(store, keys.published) or stored_manifest(store, keys)
        if made is not None or not takes_another:
            return made
        return held_by_another(store, keys.published, self.job.collections)

    @property
    def keys(self) -> CacheKeys:
        """Where this build stages it."""
        return self.job.keys.staged(self.digest)


def wanted_cache(job: BuildJob, recipe: Recipe[Any], files: Sequence[SourceFile]) -> WantedCache:
    """Returns the cache of these files; raises BadData where there is none, and where its digest is not as expected."""
    if not files:
        raise BadData(f"dataset {source_of(job)} holds no file; upload it, or correct the source")
    config, source = config_keys(recipe, job.config), listing_sha256(files)
    digest = cache_digest(
        source_sha256=source,
        collections=job.collections,
        keys=config,
        recipe=job.recipe,
        version=recipe.required_preparation.version,
    )
    if job.expect_digest and job.expect_digest != digest:
        raise BadData(
            f"expectDigest: found {job.expect_digest}, but the dataset and config give {digest}; the source, the "
            "config or the trainer image changed. Correct it, or clear expectDigest"
        )
    return WantedCache(job, config, source, digest)


def source_of(job: BuildJob) -> str:
    """Returns the prefix or folder of the raw tree."""
    return job.source.prefix if job.source.kind == "store" else job.source.path
