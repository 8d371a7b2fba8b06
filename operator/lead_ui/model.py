"""What the pages show of runs and caches: one typed model, filled by `local_runs` and by `cluster`; plain data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lead_protocol.object_keys import InstanceKeys

RUNNING = frozenset({"Caching", "Starting", "Running", "Checkpointing", "Recovering", "Building"})


@dataclass(frozen=True)
class RunKey:
    """Names a run or a cache on a page."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """One line of the table of runs: what `kubectl get trainingruns -o wide` prints."""

    key: RunKey
    recipe: str = ""
    preset: str = ""
    phase: str = ""
    reason: str = ""
    stage: str = ""
    epoch: str = ""
    percent: int | None = None
    loss: str = ""
    rate: str = ""
    eta: str = ""
    checkpoint_time: str = ""  # RFC 3339
    restarts: int = 0
    created: str = ""  # RFC 3339
    advisories: tuple[str, ...] = ()

    @property
    def lives(self) -> bool:
        """Whether it changes by itself."""
        return self.phase in RUNNING


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One condition as a sentence."""

    type: str
    status: str  # True | False | Unknown
    reason: str
    message: str
    since: str  # RFC 3339
    is_bad: bool = False


@dataclass(frozen=True, kw_only=True)
class Event:
    """One event of the API server."""

    time: str  # RFC 3339, the last time
    type: str  # Normal | Warning
    reason: str
    message: str
    count: int = 1
    about: str = ""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt of a stage instance: where it ran, when, and how it ended."""

    instance: str
    number: int
    began: float | None = None  # seconds since 1970
    ended: float | None = None  # last sign of life; None: it runs
    outcome: str = ""  # Running, Done, Stopped, Failed, Lost
    cause: str = ""  # a sentence, by its records in the bucket
    noted: str = ""  # the same by an event of the API server, which knows more of pods and nodes
    resumed_from_step: int | None = None
    pods: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One committed checkpoint."""

    instance: str
    step: int
    epoch: int
    saved_at: str  # RFC 3339
    size_bytes: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    attempt: int = 0
    is_final: bool = False
    is_best: bool = False
    quarantined: str = ""  # why it is not used; empty: nothing is known against it
    uri: str = ""
    export: str = ""  # the command that exports it, where it is the newest or the best


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod of the newest attempts."""

    name: str
    node: str = ""
    phase: str = ""
    role: str = ""
    instance: str = ""
    attempt: int = 0
    rank: int | None = None
    began: str = ""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One stage with one seed, as its records show it."""

    keys: InstanceKeys
    stage: str
    seed: int
    phase: str = ""
    attempt: int = 0
    epoch: int = 0
    epochs: int = 0
    step: int = 0
    steps: int = 0
    loss: float | None = None
    rate: float | None = None  # samples a second
    eta_s: float | None = None
    best: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    parent: str = ""  # name of the instance whose weights it began with
    message: str = ""

    @property
    def name(self) -> str:
        """Its name among the instances of its run."""
        return self.keys.name

    @property
    def steps_per_epoch(self) -> float | None:
        """How many steps an epoch has, None where that is not known."""
        return self.steps / self.epochs if self.steps and self.epochs else None

    @property
    def percent(self) -> int | None:
        """How far it is."""
        return min(100, 100 * self.step // self.steps) if self.steps else None


@dataclass(frozen=True, kw_only=True)
class Run:
    """Everything that the page of a run shows but curves, pictures and logs."""

    row: RunRow
    uid: str = ""
    message: str = ""
    instances: tuple[Instance, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    conditions: tuple[Condition, ...] = ()
    events: tuple[Event, ...] = ()
    pods: tuple[Pod, ...] = ()
    caches: tuple[str, ...] = ()
    manifest: str = ""  # YAML, as applied
    config: Mapping[str, object] = field(default_factory=dict)  # resolved, by key
    notes: tuple[str, ...] = ()  # what cannot be shown, and why
    has_logs: bool = False

    def instance(self, name: str) -> Instance | None:
        """Returns a stage instance by name, or None."""
        return next((each for each in self.instances if each.name == name), None)


@dataclass(frozen=True, kw_only=True)
class CacheRow:
    """One line of the table of caches."""

    key: RunKey
    recipe: str = ""
    phase: str = ""
    reason: str = ""
    routes: str = ""
    samples: int | None = None
    size_bytes: int | None = None
    shards: str = ""
    rate: str = ""
    eta: str = ""
    digest: str = ""
    used_by: tuple[str, ...] = ()
    created: str = ""

    @property
    def lives(self) -> bool:
        """Whether it changes by itself."""
        return self.phase in RUNNING


@dataclass(frozen=True, kw_only=True)
class Collection:
    """One bucket collection of a cache."""

    name: str
    samples: int
    buckets: int
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class Cache:
    """Everything that the page of a cache shows."""

    row: CacheRow
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    events: tuple[Event, ...] = ()
    stages: tuple[tuple[str, str, str, str], ...] = ()  # name, phase, samples, message
    routes_kept: int = 0
    routes_total: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    collections: tuple[Collection, ...] = ()
    shards: int = 0
    shard_bytes: int = 0
    meta_bytes: int = 0
    builder: str = ""
    config: Mapping[str, object] = field(default_factory=dict)
    facts: Mapping[str, Sequence[float]] = field(default_factory=dict)
    manifest: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Holding:
    """What one run or cache keeps in the bucket."""

    namespace: str
    kind: str  # run | cache | build
    name: str
    uid: str
    objects: int
    size_bytes: int
    may_go: str = ""  # why it is not needed any more; empty: it is in use
