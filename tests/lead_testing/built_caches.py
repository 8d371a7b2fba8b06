"""Builds a cache and publishes it, as `lead train` without a cluster does; in a cluster the operator publishes."""

from typing import Any

from lead_protocol.cache_publication import publish_staged
from lead_protocol.job import BuildJob
from lead_protocol.progress_record import BuildRecord
from lead_protocol.store.object_store import ObjectStore
from lead_trainer.data.build import build_share


def build_and_publish(job: BuildJob, store: ObjectStore, *arguments: Any, **options: Any) -> BuildRecord:
    """Builds a share as `build_share` does; publishes the cache where it was the last one."""
    done = build_share(job, store, *arguments, **options)
    publish_staged(store, job.keys, done.digest)
    return done
