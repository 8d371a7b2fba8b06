"""The status of a DatasetCache: every field that the CRD names, with its type. Read and written by `status_format`."""

from dataclasses import dataclass, field

from lead_operator.resources.status_format import Flag, Int, Number, ResourceStatus, StatusPart


@dataclass(frozen=True, kw_only=True)
class BuildStageStatus(StatusPart):
    """How far one stage of the build is; the last one is called merge."""

    name: str
    phase: str
    workers: Int = 0
    workers_done: Int = 0
    done: Int | None = None
    total: Int | None = None
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
    disturbances: Int = 0
    end_time: str | None = None


@dataclass(frozen=True, kw_only=True)
class BuildSpeed(StatusPart):
    """How fast the build goes, and what was complete when that was measured."""

    time: str | None = None
    shards: Int = 0
    bytes: Int = 0
    samples: Int = 0
    samples_per_second: Number | None = None
    bytes_per_second: Int | None = None
    rate: str = ""
    eta: str = ""


@dataclass(frozen=True, kw_only=True)
class BuildStatus(StatusPart):
    """The counters of the build that answers the newest spec."""

    generation: Int | None = None
    inputs: str = ""
    round: Int | None = None
    pods: str = ""
    workers: tuple[WorkerStatus, ...] = ()
    speed: BuildSpeed | None = None


@dataclass(frozen=True, kw_only=True)
class DatasetCacheStatus(ResourceStatus):
    """`.status` of a DatasetCache."""

    digest: str = ""
    digest_text: str = ""
    manifest_sha256: str = ""
    uri: str = ""
    routes: str = ""
    route_reasons: dict[str, Int] = field(default_factory=dict)
    samples: Int | None = None
    shards: str = ""
    percent: Int | None = None
    size_bytes: Int | None = None
    size: str = ""
    used_by: tuple[str, ...] = ()
    used_by_text: str = ""
    stage: str = ""
    stages: tuple[BuildStageStatus, ...] = ()
    build: BuildStatus | None = None
