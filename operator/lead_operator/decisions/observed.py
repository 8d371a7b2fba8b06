"""A snapshot of the cluster and the bucket; made by `kube.observe`, read by the pure decisions.

Nothing here is trusted beyond its type: progress records were parsed and bounded by `lead_protocol.progress_record`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from lead_operator.resources.dataset_cache_status import DatasetCacheStatus
from lead_operator.resources.status_format import JsonObject, parse_status
from lead_operator.resources.training_run_status import TrainingRunStatus
from lead_protocol.closed_loop_record import DrivenNumbers
from lead_protocol.progress_record import BuildRecord, ProgressRecord
from lead_protocol.run_records import RestartRecord, RunEnd, StartedAttempt

POD_ENDS = ("Succeeded", "Failed")  # phases
STAYS_S = 60.0  # after its grace period, for the kubelet to report that a pod is gone


@dataclass(frozen=True)
class ObservedPod:
    """One pod that the resource owns (by owner UID, never by name)."""

    name: str
    uid: str
    role: str  # of names.Role
    stage: str  # empty for build pods
    seed: int
    attempt: int
    rank: int  # build pods: index
    phase: str  # Pending | Running | Succeeded | Failed | Unknown
    version: str = ""  # of the copy it was read from
    ready: bool = False
    kept_by_sidecar: bool = False  # its work has ended, and a container that was added at admission keeps running
    deleting: bool = False
    grace_ends_at: datetime | None = None  # of a pod that is being deleted
    node: str = ""
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    exit_code: int | None = None
    reason: str = ""  # pod or container reason: OOMKilled, Evicted, NodeLost, Error, …
    disruption: str = ""  # reason of a DisruptionTarget condition that is True
    waiting_reason: str = ""  # ImagePullBackOff, CreateContainerConfigError, Unschedulable, …
    waiting_message: str = ""
    message: str = ""  # termination message, at most 4096 bytes
    checkpoint_time: str = ""  # as last passed to the scheduler
    pulls: str = ""  # image, pull policy and secrets it was created with; empty where that is not known
    nodes: int = 0  # pods of its group; 0: not a pod of a group, or one of an older operator
    epoch: int = 0  # of the weights that a closed-loop pod drives with
    container: str = ""  # of its init containers, which reason, exit code and message are of; empty: its main one
    node_ready: bool = True  # False: the node is gone or NotReady
    node_not_ready_since: datetime | None = None

    @property
    def terminal(self) -> bool:
        """True once no process of this pod can write any more."""
        return self.phase in POD_ENDS

    def is_past_deadline(self, now: datetime) -> bool:
        """True where it should be gone by now, and its node answers: nothing waits for it any more."""
        if self.terminal or not self.node_ready or self.grace_ends_at is None:
            return False
        return now >= self.grace_ends_at + timedelta(seconds=STAYS_S)


@dataclass(frozen=True)
class ObservedCheckpoint:
    """One committed checkpoint, from its manifest."""

    manifest_key: str
    prefix: str  # of the data objects
    step: int
    epoch: int
    attempt: int
    size_bytes: int
    saved_at: str
    final: bool = False  # the trainer marked it as the end of the stage
    fault: str = ""  # why it is not believed to be whole: it ends no stage


@dataclass(frozen=True)
class ObservedInstance:
    """What the bucket holds of one stage instance."""

    stage: str
    seed: int
    progress: ProgressRecord | None = None  # of the highest attempt that has one
    checkpoint: ObservedCheckpoint | None = None  # the newest whose manifest parses
    highest_attempt: int = 0  # by the operator's records; by fencing objects at most one more
    recorded_attempt: int = 0  # by the operator's records alone
    started: StartedAttempt | None = None  # that record
    fence: int = 0  # highest number of a fencing object, whatever it is
    done: bool = False  # the operator has recorded its final checkpoint
    quarantined: tuple[str, ...] = ()  # manifest keys found corrupt
    manifests: tuple[str, ...] = ()  # keys of all others; empty where the LIST was cut short


@dataclass(frozen=True)
class ObservedCache:
    """A DatasetCache that a run references."""

    name: str
    found: bool
    recipe: str = ""
    ready: bool = False
    failed: bool = False
    digest: str = ""
    manifest_sha256: str = ""
    message: str = ""
    storage_profile: str = ""  # empty: not compared
    near: str = ""  # of one that is not found: a DatasetCache of the namespace with a name most like it


@dataclass(frozen=True)
class ObservedClaim:
    """A session-cache claim that a run uses: its own, or one that runs share."""

    name: str
    uid: str
    created_at: datetime
    deleting: bool = False


@dataclass(frozen=True)
class ObservedDrive:
    """One published result of driving, from its manifest."""

    manifest_key: str
    stage: str
    seed: int
    attempt: int
    pod_uid: str
    epoch: int
    requested: str
    results_prefix: str
    numbers: DrivenNumbers
    saved_at: str


@dataclass(frozen=True)
class ObservedRun:
    """Everything `decide_training_run` may know besides the spec."""

    now: datetime
    pods: tuple[ObservedPod, ...] = ()  # that train
    checks: tuple[ObservedPod, ...] = ()  # that only judge the configuration
    drivers: tuple[ObservedPod, ...] = ()  # that drive in the closed loop
    drives: tuple[ObservedDrive, ...] = ()  # results, by attempt
    drives_read: bool = False  # the bucket was read for them this time
    refused: Mapping[str, str] = field(default_factory=dict)  # pods that training does not need: why they were refused
    service_exists: bool = False
    claims: tuple[ObservedClaim, ...] = ()
    nodes_away: dict[str, datetime] = field(default_factory=dict)  # of those in status.cacheNodes, since when
    caches: tuple[ObservedCache, ...] = ()
    instances: tuple[ObservedInstance, ...] = ()
    store_error: str = ""  # why the bucket could not be read this time; empty when it was
    profile_error: str = ""  # the storage profile does not exist
    apply_error: str = ""  # why the API server refused our newest objects (quota, admission); empty when it took them
    rested: bool = False  # the bucket was read longer ago than usual, because it stood still
    next_reading_s: float | None = None  # until it is read again; None: as usual
    previous: JsonObject = field(default_factory=dict)  # .status as last read
    ended: RunEnd | None = None  # the final result, once the bucket holds it, whatever the status is
    end_disproved: bool = False  # status reports an end that the operator has not recorded
    counters_disproved: str = ""  # what status reports of restarts and ends, and the operator has not recorded
    restart_record: RestartRecord | None = None  # the newest that the bucket holds

    @cached_property
    def status(self) -> TrainingRunStatus:
        """The status as last read."""
        return parse_status(TrainingRunStatus, self.previous)

    @property
    def erased(self) -> bool:
        """Whether status holds no counters: it was erased, or nothing was written yet."""
        return self.status.restarts is None

    @property
    def by_records(self) -> bool:
        """Whether restarts and ends are read from the operator's records and the pods, and not from status."""
        return self.erased or bool(self.counters_disproved)

    @property
    def started(self) -> StartedAttempt | None:
        """What the operator has recorded of the run's attempts: what it was started with is the same in all."""
        return next((instance.started for instance in self.instances if instance.started is not None), None)

    @property
    def accounts_unknown(self) -> bool:
        """Whether the number of restarts is unknown: its status is erased, and its bucket not read."""
        return self.erased and bool(self.store_error or self.profile_error)


@dataclass(frozen=True)
class BuildReport:
    """The newest record of the pod that does one share of a build, or of one stage of it."""

    index: int
    record: BuildRecord
    since: datetime  # when it was first read
    stage: str = ""  # empty: the last one, which commits the manifest


@dataclass(frozen=True)
class ObservedBuild:
    """Everything `decide_dataset_cache` may know besides the spec."""

    now: datetime
    pods: tuple[ObservedPod, ...] = ()
    result_digest: str = ""  # of the published cache; until there is one, as the build pods report it
    manifest: "ObservedCacheManifest | None" = None  # published by the operator, and unchanged since
    published_sha256: str = ""  # of the manifest that the operator has published
    found_sha256: str = ""  # of the manifest that lies there now; empty: none, or no valid one
    publication: "ObservedPublication | None" = None
    failure: "ObservedBuildFailure | None" = None  # newest of this generation that the operator has recorded
    failure_disproved: bool = False  # if status reports one, nobody but the status knows of it
    reports: tuple[BuildReport, ...] = ()
    used_by: tuple[str, ...] = ()  # names of unfinished TrainingRuns that reference it
    source_claim_owner: str = ""  # whose the claim of spec.source is: the store's, a run's; empty: raw data
    source: "ObservedSource | None" = None  # the newest listing of the raw data, where the operator can see it
    store_error: str = ""
    profile_error: str = ""
    apply_error: str = ""
    rested: bool = False  # as of a run; a build's bucket never rests
    next_reading_s: float | None = None
    previous: JsonObject = field(default_factory=dict)  # .status as last read

    @cached_property
    def status(self) -> DatasetCacheStatus:
        """The status as last read."""
        return parse_status(DatasetCacheStatus, self.previous)

    @property
    def records(self) -> tuple[BuildRecord, ...]:
        """The newest record of each pod of the stage that makes the shards."""
        return tuple(report.record for report in self.reports if not report.stage)


@dataclass(frozen=True)
class ObservedCacheManifest:
    """The few facts of a cache manifest that status shows."""

    digest: str
    routes_total: int
    routes_kept: int
    route_reasons: dict[str, int]
    samples: int
    shards: int
    size_bytes: int
    source_sha256: str = ""  # of the listing it was built from
    sha256: str = ""  # of the manifest's bytes


@dataclass(frozen=True)
class ObservedPublication:
    """How far the publication of a staged cache is."""

    objects: int = 0  # copied and verified
    objects_total: int = 0
    size_bytes: int = 0
    reason: str = ""
    refused: str = ""  # why it is not published; ends it
    damaged: str = ""  # what is wrong with objects of a cache that was published before; asked for again
    error: str = ""  # of the store; tried again
    missing: bool = False  # nothing is staged
    done: bool = False
    digest: str = ""
    rebuilds: int = 0

    @property
    def ended(self) -> bool:
        """Whether nothing more comes of this request."""
        return bool(self.refused) or self.missing or self.done

    @property
    def waits(self) -> bool:
        """Whether it has to be begun again later."""
        return bool(self.damaged or self.error)


@dataclass(frozen=True)
class ObservedBuildFailure:
    """A build that has failed for good, as recorded."""

    rebuilds: int  # how often it was begun again before it failed
    reason: str
    message: str
    ended_at: str = ""
    source_sha256: str = ""  # of the listing of the raw data after it; empty: not listed yet


@dataclass(frozen=True)
class ObservedSource:
    """What one listing of the raw data came to.

    Where it has changed, the places (routes, logs) that differ are named as far as they are known: an operator that
    has not seen the source as it was built from knows none.
    """

    sha256: str
    files: int
    added: tuple[str, ...] = ()  # in order, like the others
    removed: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()  # are still there, with other files
