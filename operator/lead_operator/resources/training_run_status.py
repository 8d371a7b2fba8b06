"""The status of a TrainingRun: every field that the CRD names, with its type. Read and written by `status_format`."""

from dataclasses import dataclass, field

from lead_operator.resources.status_format import FailureStatus, Flag, Int, Number, ResourceStatus, StatusPart


@dataclass(frozen=True, kw_only=True)
class ProgressStatus(StatusPart):
    """How far a stage instance is, as its rank 0 reported it."""

    attempt: Int | None = None
    seq: Int | None = None
    phase: str = ""
    epoch: Int | None = None
    epochs: Int | None = None
    epoch_text: str = ""
    step: Int | None = None
    steps: Int | None = None
    step_text: str = ""
    percent: Int | None = None
    loss: str = ""
    metrics: dict[str, str] = field(default_factory=dict)
    samples_per_second: Number | None = None
    rate: str = ""
    eta_seconds: Int | None = None
    eta: str = ""
    reported_at: str | None = None
    advanced_at: str | None = None

    @property
    def order(self) -> tuple[int, int]:
        """The attempt and, within it, the number of the report: later reports are greater."""
        return self.attempt or 0, -1 if self.seq is None else self.seq


@dataclass(frozen=True, kw_only=True)
class BookStatus(StatusPart):
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
    epoch: Int = 0
    epochs: Int = 0
    loss: str = ""
    best: str = ""
    checkpoint: str = ""
    start_time: str | None = None
    completion_time: str | None = None
    progress: ProgressStatus | None = None
    book: BookStatus | None = None

    @property
    def key(self) -> tuple[str, int]:
        """Stage and seed."""
        return self.name, self.seed

    @property
    def ended_attempt(self) -> int:
        """The newest attempt that has ended and is accounted for; 0: none has."""
        return self.book.ended_attempt if self.book else 0


@dataclass(frozen=True, kw_only=True)
class StageStatus(StatusPart):
    """The stage instance that is trained now, or was last."""

    text: str = ""
    name: str = ""
    seed: Int | None = None
    index: Int | None = None
    total: Int | None = None


@dataclass(frozen=True, kw_only=True)
class SeedStatistics(StatusPart):
    """The best metric over the seeds of a stage that have finished."""

    stage: str
    seeds: Int = 0
    mean: str = ""
    std: str = ""
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class DatasetStatus(StatusPart):
    """A cache that the run trains on, by content."""

    name: str
    digest: str = ""
    manifest_sha256: str = ""


@dataclass(frozen=True, kw_only=True)
class CheckpointStatus(StatusPart):
    """The newest committed checkpoint of the current stage instance."""

    uri: str = ""
    step: Int | None = None
    epoch: Int | None = None
    saved_at: str | None = None
    size_bytes: Int | None = None


@dataclass(frozen=True, kw_only=True)
class RestartsStatus(StatusPart):
    """How often the group was replaced."""

    total: Int = 0
    program: Int = 0
    infrastructure: Int = 0
    uncounted: Int = 0


@dataclass(frozen=True, kw_only=True)
class PodsStatus(StatusPart):
    """Pods of the newest attempt."""

    desired: Int = 0
    ready: Int = 0
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class AttemptFailure(FailureStatus):
    """Why the newest failed attempt ended."""

    stage: str = ""
    seed: Int | None = None
    attempt: Int | None = None


@dataclass(frozen=True, kw_only=True)
class TrainingRunStatus(ResourceStatus):
    """`.status` of a TrainingRun."""

    config_hash: str = ""
    stage: StageStatus | None = None
    stages: tuple[InstanceStatus, ...] = ()
    seed_statistics: tuple[SeedStatistics, ...] = ()
    datasets: tuple[DatasetStatus, ...] = ()
    progress: ProgressStatus | None = None
    checkpoint: CheckpointStatus | None = None
    resumed_from: str = ""
    restarts: RestartsStatus | None = None
    pods: PodsStatus | None = None
    nodes: tuple[str, ...] = ()
    nodes_text: str = ""
    cache_nodes: tuple[str, ...] = ()
    cache_hits: str = ""
    cache: dict[str, str] = field(default_factory=dict)
    last_failure: AttemptFailure | None = None

    def instance(self, stage: str, seed: int) -> InstanceStatus | None:
        """Returns the entry of a stage instance, or None."""
        return next((entry for entry in self.stages if entry.key == (stage, seed)), None)
