"""Whether what a DatasetCache's status reports is the operator's own: a status is output, whoever writes it.

Asked by `controllers.reconcile`. A failure counts if it is recorded below `control/`, or if this process decided it
while the store was away; Ready counts for runs once the cache's own pass has read the published manifest.
"""

from dataclasses import dataclass, field

from lead_operator.bucket.bucket_view import BucketLook
from lead_operator.decisions.observed import ObservedBuild
from lead_operator.names import CachePhase
from lead_operator.resources.dataset_cache_status import BuildStatus, DatasetCacheStatus


@dataclass
class ReportedBuilds:
    """What one operator process knows of builds, by UID."""

    failed: dict[str, set[str]] = field(default_factory=dict)
    published: dict[str, tuple[str, str]] = field(default_factory=dict)  # digest and SHA-256 of the manifest

    def note(self, uid: str, observed: ObservedBuild, status: DatasetCacheStatus) -> None:
        """Remembers what a pass has seen and decided."""
        if status.phase == CachePhase.FAILED != observed.status.phase:
            self.failed.setdefault(uid, set()).add(_failure(status))
        if observed.manifest is not None:
            self.published[uid] = (observed.manifest.digest, observed.manifest.sha256)

    def disproves_failure(self, uid: str, status: DatasetCacheStatus, look: BucketLook) -> bool:
        """Tells whether nobody but the status knows of a failure that it may report."""
        known = look.failure is not None and look.failure.round == (status.build or BuildStatus()).round
        return not look.error and not known and _failure(status) not in self.failed.get(uid, ())

    def is_published(self, uid: str, digest: str, manifest_sha256: str) -> bool:
        """Tells whether a pass over the cache has read this manifest."""
        return self.published.get(uid) == (digest, manifest_sha256)

    def forget(self, uid: str) -> None:
        """Drops what is remembered of a cache that is gone."""
        self.failed.pop(uid, None)
        self.published.pop(uid, None)


def _failure(status: DatasetCacheStatus) -> str:
    build = status.build or BuildStatus()
    return f"{build.generation} {build.round} {status.reason}"
