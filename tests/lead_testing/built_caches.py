"""Builds a cache and publishes it, as `lead train` without a cluster does; in a cluster the operator publishes."""

from collections.abc import Mapping, Sequence
from typing import Any

from lead_protocol.cache_publication import publish_staged
from lead_protocol.job import BuildJob, FolderSource, OwnerIdentity
from lead_protocol.progress_record import BuildRecord
from lead_protocol.store.object_store import ObjectStore
from lead_trainer.data.build import build_share


def build_and_publish(job: BuildJob, store: ObjectStore, *arguments: Any, **options: Any) -> BuildRecord:
    """Builds a share as `build_share` does; publishes the cache where it was the last one."""
    done = build_share(job, store, *arguments, **options)
    publish_staged(store, job.keys, done.digest)
    return done


def whole_build(
    recipe: str, collections: Sequence[str], config: Mapping[str, Any] | None = None, path: str = "tree"
) -> BuildJob:
    """Returns the job of a cache that one process builds from a folder."""
    return BuildJob(
        owner=OwnerIdentity(namespace="local", name="cache", uid="uid"),
        generation=1,
        attempt=1,
        index=0,
        parallelism=1,
        recipe=recipe,
        source=FolderSource(path=path),
        collections=list(collections),
        config=dict(config or {}),
    )
