"""Whether what a DatasetCache's status reports is the operator's own: a status is output, whoever writes it.

Asked by both controllers. A failure counts if it is recorded below `control/`, or if this process decided it while the
store was away; Ready counts for runs once the cache's own pass has read the published manifest.
"""

from dataclasses import dataclass, field

from lead_operator.bucket.bucket_snapshot import BucketSnapshot
from lead_operator.decisions.observed import ObservedBuild
from lead_operator.memory import Memories, Part
from lead_operator.names import CachePhase
from lead_operator.resources.dataset_cache_status import BuildStatus, DatasetCacheStatus


@dataclass
class _Decided(Part):
    """What this process has decided of one cache."""

    failures: set[str] = field(default_factory=set)
    published: tuple[str, str] | None = None  # digest and SHA-256 of the manifest


@dataclass
class ReportedCaches:
    """What one operator process knows of caches by itself."""

    memories: Memories = field(default_factory=Memories)

    def note(self, uid: str, observed: ObservedBuild, status: DatasetCacheStatus) -> None:
        """Remembers what a pass has seen and decided."""
        known = self.memories.of(uid, _Decided)
        if status.phase == CachePhase.FAILED != observed.status.phase:
            known.failures.add(_failure(status))
        if observed.manifest is not None:
            known.published = (observed.manifest.digest, observed.manifest.sha256)

    def disproves_failure(self, uid: str, status: DatasetCacheStatus, snapshot: BucketSnapshot) -> bool:
        """Returns whether a failure is in the status alone."""
        recorded = (
            snapshot.failure is not None and snapshot.failure.rebuilds == (status.build or BuildStatus()).rebuilds
        )
        return not snapshot.error and not recorded and _failure(status) not in self.memories.of(uid, _Decided).failures

    def is_published(self, uid: str, digest: str, manifest_sha256: str) -> bool:
        """Returns whether a pass over the cache has read this manifest."""
        known = self.memories.find(uid, _Decided)
        return known is not None and known.published == (digest, manifest_sha256)


def _failure(status: DatasetCacheStatus) -> str:
    build = status.build or BuildStatus()
    return f"{build.generation} {build.rebuilds} {status.reason}"
