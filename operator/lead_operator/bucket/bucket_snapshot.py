"""What one read of a bucket comes to, and what it may cost; made by `bucket_view`, read by the controllers."""

from dataclasses import dataclass

from lead_operator.decisions.observed import (
    BuildReport,
    ObservedBuildFailure,
    ObservedCacheManifest,
    ObservedDrive,
    ObservedInstance,
)
from lead_protocol.run_records import RestartRecord, RunEnd


@dataclass(frozen=True)
class BucketSnapshot:
    """The result of one read; with `error`, that of the last successful one."""

    error: str = ""
    instances: tuple[ObservedInstance, ...] = ()
    drives: tuple[ObservedDrive, ...] = ()
    ended: RunEnd | None = None
    restart_record: RestartRecord | None = None
    result_digest: str = ""
    manifest: ObservedCacheManifest | None = None
    published_sha256: str = ""
    found_sha256: str = ""
    failure: ObservedBuildFailure | None = None
    reports: tuple[BuildReport, ...] = ()


@dataclass(frozen=True)
class EndSnapshot:
    """The operator's records of a run whose status reports an end."""

    error: str = ""  # why it could not be read
    ended: RunEnd | None = None
    any_record: bool = False


@dataclass(frozen=True)
class ReadLimits:
    """What one snapshot may cost."""

    objects: int = 20_000  # of one resource, in one LIST
    control_age_s: float = 60.0  # nobody but an operator writes below control/; this process knows what it has written
