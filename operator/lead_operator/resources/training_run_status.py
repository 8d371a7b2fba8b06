"""The status of a TrainingRun: every field that the CRD names, with its type. Read and written by `status_format`."""

from dataclasses import dataclass, field

from lead_operator.resources.closed_loop_status import ClosedLoopStatus
from lead_operator.resources.status_format import FailureStatus, Flag, Int, ResourceStatus, StatusPart


@dataclass(frozen=True, kw_only=True)
class RunDisplay(StatusPart):
    """What the columns of `kubectl get` print, of the stage instance that is trained now, or was last."""

    stage: str = ""
    epoch: str = ""
    step: str = ""
    loss: str = ""
    rate: str = ""
    eta: str = ""
    checkpoint_time: str | None = None
    resumed_from: str = ""
    pods: str = ""
    nodes: str = ""
    cache_hits: str = ""
    closed_loop: str = ""


@dataclass(frozen=True, kw_only=True)
class ProgressStatus(StatusPart):
    """How far a stage instance is, as its rank 0 reported it; of one that has ended, how far it came."""

    attempt: Int | None = None
    sequence: Int | None = None
    phase: str = ""
    epoch: Int = 0
    epochs: Int = 0
    step: Int | None = None
    steps: Int | None = None
    percent: Int | None = None
    loss: str = ""
    metrics: dict[str, str] = field(default_factory=dict)
    milli_samples_per_second: Int | None = None
    eta_seconds: Int | None = None
    reported_at: str | None = None
    advanced_at: str | None = None

    @property
    def order(self) -> tuple[int, int]:
        """The attempt and, within it, the number of the report: later reports are greater."""
        return self.attempt or 0, -1 if self.sequence is None else self.sequence


@dataclass(frozen=True, kw_only=True)
class CheckpointStatus(StatusPart):
    """The newest committed checkpoint of a stage instance."""

    uri: str = ""
    step: Int | None = None
    epoch: Int | None = None
    saved_at: str | None = None
    size_bytes: Int | None = None


@dataclass(frozen=True, kw_only=True)
class RestartState(StatusPart):
    """The operator's own counters of a stage instance; those of failures are absent until something has failed."""

    ended_attempt: Int = 0
    created: Flag = False
    attempt_time: str | None = None
    failed_attempt: Int | None = None
    failed_at: str | None = None
    failed_reason: str = ""
    at_step: Int | None = None
    errors_at_step: Int | None = None
    ends_at_step: Int | None = None


@dataclass(frozen=True, kw_only=True)
class InstanceStatus(StatusPart):
    """One stage with one seed."""

    name: str
    seed: Int
    phase: str = ""
    attempt: Int = 0
    resumed_from_step: Int | None = None
    best: str = ""
    progress: ProgressStatus | None = None
    checkpoint: CheckpointStatus | None = None
    start_time: str | None = None
    completion_time: str | None = None
    restart_state: RestartState | None = None

    @property
    def key(self) -> tuple[str, int]:
        """Stage and seed."""
        return self.name, self.seed

    @property
    def ended_attempt(self) -> int:
        """The newest attempt that has ended and is accounted for; 0: none has."""
        return self.restart_state.ended_attempt if self.restart_state else 0

    @property
    def checkpoint_uri(self) -> str:
        """Where its newest checkpoint lies; empty where it has none."""
        return self.checkpoint.uri if self.checkpoint else ""


@dataclass(frozen=True, kw_only=True)
class SeedStatistics(StatusPart):
    """The best metric over the seeds of a stage that have finished."""

    stage: str
    seeds: Int = 0
    mean: str = ""
    std: str = ""


@dataclass(frozen=True, kw_only=True)
class DatasetStatus(StatusPart):
    """A cache that the run trains on, by content."""

    name: str
    digest: str = ""
    manifest_sha256: str = ""


@dataclass(frozen=True, kw_only=True)
class RestartsStatus(StatusPart):
    """How often the group was replaced."""

    total: Int = 0
    program: Int = 0
    infrastructure: Int = 0
    voluntary: Int = 0


@dataclass(frozen=True, kw_only=True)
class PodsStatus(StatusPart):
    """Pods of the newest attempt."""

    desired: Int = 0
    ready: Int = 0


@dataclass(frozen=True, kw_only=True)
class SessionCacheStatus(StatusPart):
    """Reads of the session cache and time spent in loading, of all ranks of the newest attempt."""

    hits: Int = 0
    misses: Int = 0
    fetched_bytes: Int = 0
    fetched_twice_bytes: Int = 0
    corrupt: Int = 0
    loading_milliseconds: dict[str, Int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AttemptFailure(FailureStatus):
    """Why the newest failed attempt ended."""

    stage: str = ""
    seed: Int | None = None
    attempt: Int | None = None


@dataclass(frozen=True, kw_only=True)
class TrainingRunStatus(ResourceStatus):
    """`.status` of a TrainingRun."""

    display: RunDisplay | None = None
    config_hash: str = ""
    stages: tuple[InstanceStatus, ...] = ()
    seed_statistics: tuple[SeedStatistics, ...] = ()
    datasets: tuple[DatasetStatus, ...] = ()
    restarts: RestartsStatus | None = None
    pods: PodsStatus | None = None
    nodes: tuple[str, ...] = ()
    cache_nodes: tuple[str, ...] = ()
    session_cache: SessionCacheStatus | None = None
    closed_loop: ClosedLoopStatus | None = None
    last_failure: AttemptFailure | None = None

    def instance(self, stage: str, seed: int) -> InstanceStatus | None:
        """Returns the entry of a stage instance, or None."""
        return next((entry for entry in self.stages if entry.key == (stage, seed)), None)
