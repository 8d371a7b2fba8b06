"""The status of a DatasetCache: every field that the CRD names, with its type. Read and written by `status_format`."""

from dataclasses import dataclass, field

from lead_operator.resources.status_format import Flag, Int, ResourceStatus, StatusPart


@dataclass(frozen=True, kw_only=True)
class CacheDisplay(StatusPart):
    """What the columns of `kubectl get` print."""

    routes: str = ""
    shards: str = ""
    size: str = ""
    used_by: str = ""
    digest: str = ""
    rate: str = ""
    eta: str = ""
    stage: str = ""


@dataclass(frozen=True, kw_only=True)
class RoutesStatus(StatusPart):
    """Routes of the source: those that the cache keeps, and all that were found."""

    kept: Int = 0
    total: Int = 0


@dataclass(frozen=True, kw_only=True)
class DoneOfTotal(StatusPart):
    """How many of a number of equal pieces of work are done."""

    done: Int = 0
    total: Int = 0


@dataclass(frozen=True, kw_only=True)
class BuildStageStatus(StatusPart):
    """How far one stage of the build is; the last one is called merge."""

    name: str
    phase: str
    pods: DoneOfTotal | None = None
    samples: DoneOfTotal | None = None
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class WorkerStatus(StatusPart):
    """One share of a stage's work."""

    stage: str = ""
    index: Int
    attempt: Int = 0
    ended_attempt: Int = 0
    created: Flag = False
    done: Flag = False
    errors: Int = 0
    infrastructure_failures: Int = 0
    end_time: str | None = None


@dataclass(frozen=True, kw_only=True)
class BuildSpeed(StatusPart):
    """How fast the build goes, and what was complete when that was measured."""

    time: str | None = None
    shards: Int = 0
    bytes: Int = 0
    samples: Int = 0
    milli_samples_per_second: Int | None = None
    bytes_per_second: Int | None = None
    eta_seconds: Int | None = None


@dataclass(frozen=True, kw_only=True)
class BuildStatus(StatusPart):
    """The counters of the build that answers the newest spec."""

    generation: Int | None = None
    inputs: str = ""
    rebuilds: Int = 0
    pods: DoneOfTotal | None = None
    workers: tuple[WorkerStatus, ...] = ()
    speed: BuildSpeed | None = None


@dataclass(frozen=True, kw_only=True)
class DatasetCacheStatus(ResourceStatus):
    """`.status` of a DatasetCache."""

    display: CacheDisplay | None = None
    digest: str = ""
    manifest_sha256: str = ""
    uri: str = ""
    routes: RoutesStatus | None = None
    route_reasons: dict[str, Int] = field(default_factory=dict)
    samples: Int | None = None
    shards: DoneOfTotal | None = None
    percent: Int | None = None
    size_bytes: Int | None = None
    used_by: tuple[str, ...] = ()
    stages: tuple[BuildStageStatus, ...] = ()
    build: BuildStatus | None = None
