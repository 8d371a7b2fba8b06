"""The metrics of each run and cache, for /metrics: their phases, and of what trains its place and its newest report.

Trainers open no port: their counters come with the progress record, which the operator reads anyway, so that one page
with one right shows everything. They are as new as that record (`operator.progressSeconds`), of the newest attempt, and
a new attempt counts from zero, as Prometheus expects of a process that restarts. Ages are by the API server's clock,
as the times in a status are.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import Metric
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from lead_operator.memory import Part
from lead_operator.metrics import REGISTRY
from lead_operator.resources.training_run_status import InstanceStatus, ProgressStatus, RestartsStatus
from lead_protocol.progress_record import STEP_BOUNDS_S, ProgressRecord

INSTANCE = ("namespace", "run", "stage", "seed")
NOTHING = ProgressRecord(attempt=1, seq=0, phase="Starting", epoch=0, epochs=0, step=0, steps=0)


@dataclass
class NewestReports(Part):
    """The progress records of one run as they were last read, by stage and seed."""

    records: Mapping[tuple[str, int], ProgressRecord] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LiveInstance:
    """A stage instance that trains; ages in seconds, None where there is no such time."""

    namespace: str
    run: str
    entry: InstanceStatus
    record: ProgressRecord = NOTHING  # of the newest attempt; NOTHING before its first
    attempt_age_s: float | None = None
    report_age_s: float | None = None
    step_age_s: float | None = None
    checkpoint_age_s: float | None = None

    @property
    def progress(self) -> ProgressStatus:
        """What the status shows of it."""
        return self.entry.progress or ProgressStatus()

    @property
    def labels(self) -> tuple[str, ...]:
        """The values of INSTANCE."""
        return self.namespace, self.run, self.entry.name, str(self.entry.seed)


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """What one page shows."""

    runs: tuple[tuple[str, str, str], ...] = ()  # namespace, name, phase
    caches: tuple[tuple[str, str, str], ...] = ()
    restarts: tuple[tuple[str, str, RestartsStatus], ...] = ()  # namespace, name; of runs that have not ended
    instances: tuple[LiveInstance, ...] = ()


Values = Mapping[str, float | None]  # by the value of one further label


@dataclass(frozen=True)
class _Kind:
    """One metric of each stage instance: `read` returns its value, or several by the further label."""

    name: str
    help: str
    read: Callable[[LiveInstance], float | Values | None]
    label: str = ""
    counts: bool = False  # a counter

    def family(self, instances: tuple[LiveInstance, ...]) -> Metric:
        """Returns the metric with the samples of all instances."""
        names = (*INSTANCE, self.label) if self.label else INSTANCE
        family = (CounterMetricFamily if self.counts else GaugeMetricFamily)(self.name, self.help, labels=names)
        for each in instances:
            found = self.read(each)
            for further, value in (found if isinstance(found, Mapping) else {"": found}).items():
                if value is not None:
                    family.add_metric([*each.labels, *([further] if self.label else [])], value)
        return family


def _rate(instance: LiveInstance) -> float | None:
    found = instance.progress.milli_samples_per_second
    return None if found is None else found / 1000


def _cache_reads(instance: LiveInstance) -> Values:
    return {"hit": instance.record.cache_hits, "miss": instance.record.cache_misses}


KINDS = (
    _Kind("lead_run_attempt", "Number of the newest attempt.", lambda i: i.entry.attempt),
    _Kind("lead_run_epoch", "Epochs completed of the stage.", lambda i: i.progress.epoch),
    _Kind("lead_run_epochs", "Epochs of the stage.", lambda i: i.progress.epochs),
    _Kind("lead_run_step", "Optimizer steps completed of the stage.", lambda i: i.progress.step),
    _Kind("lead_run_steps", "Optimizer steps of the stage.", lambda i: i.progress.steps),
    _Kind("lead_run_loss", "Mean training loss as last reported.", lambda i: i.record.loss),
    _Kind("lead_run_samples_per_second", "Samples trained a second, of all ranks, over the last minute.", _rate),
    _Kind("lead_run_remaining_seconds", "Expected time to the end of the stage.", lambda i: i.progress.eta_seconds),
    _Kind("lead_run_attempt_age_seconds", "Time since the newest attempt began.", lambda i: i.attempt_age_s),
    _Kind("lead_run_report_age_seconds", "Time since rank 0 last reported.", lambda i: i.report_age_s),
    _Kind(
        "lead_run_step_age_seconds", "Time since a report last showed a new step, or a phase other than training.",
        lambda i: i.step_age_s,
    ),
    _Kind(
        "lead_run_checkpoint_age_seconds", "Time since the newest checkpoint was committed.",
        lambda i: i.checkpoint_age_s,
    ),
    _Kind(
        "lead_run_loading_seconds", "Time of all ranks by stage of loading; wait: steps waited for data.",
        lambda i: i.record.loading_s, label="loading_stage", counts=True,
    ),
    _Kind(
        "lead_run_fetch_seconds", "Time that loading threads of all ranks waited for the object store.",
        lambda i: i.record.cache_fetch_s, counts=True,
    ),
    _Kind(
        "lead_run_fetched_bytes", "Bytes of caches that all ranks fetched from the object store.",
        lambda i: i.record.cache_fetched_bytes, counts=True,
    ),
    _Kind(
        "lead_run_fetched_twice_bytes", "Bytes requested a second time because the first response was late.",
        lambda i: i.record.cache_second_bytes, counts=True,
    ),
    _Kind(
        "lead_run_session_cache_reads", "Records that all ranks read, by whether the session cache had them.",
        _cache_reads, label="result", counts=True,
    ),
    _Kind(
        "lead_run_session_cache_corrupt", "Copies in session caches that were damaged and fetched again.",
        lambda i: i.record.cache_corrupt, counts=True,
    ),
    _Kind(
        "lead_run_session_cache_degraded_ranks", "Ranks whose session cache cannot be used, up to 64.",
        lambda i: len(i.record.cache_degraded_ranks),
    ),
    _Kind(
        "lead_run_gpu_memory_used_bytes", "Memory in use on the GPU of rank 0, by all processes.",
        lambda i: i.record.gpu_memory_bytes,
    ),
    _Kind("lead_run_gpu_memory_bytes", "Memory of the GPU of rank 0.", lambda i: i.record.gpu_memory_total_bytes),
    _Kind(
        "lead_run_gpu_utilization_ratio", "Share of time in which the GPU of rank 0 computed, when last sampled.",
        lambda i: i.record.gpu_busy,
    ),
)  # fmt: skip


class RunCollector(Collector):
    """Shows what `snapshot` holds; the manager renews it for each page."""

    def __init__(self) -> None:
        self.snapshot = Snapshot()

    def collect(self) -> Iterator[Metric]:
        """Yields every family, also those without samples, so that the page describes all of them."""
        shown = self.snapshot
        for kind, entries in (("run", shown.runs), ("cache", shown.caches)):
            help_text = f"1 for the phase of a {'TrainingRun' if kind == 'run' else 'DatasetCache'}."
            phases = GaugeMetricFamily(f"lead_{kind}_phase", help_text, labels=("namespace", kind, "phase"))
            for entry in entries:
                phases.add_metric(entry, 1)
            yield phases
        yield _restarts(shown)
        yield from (kind.family(shown.instances) for kind in KINDS)
        yield _step_durations(shown.instances)
        yield _checkpoint_durations(shown.instances)


def _restarts(shown: Snapshot) -> Metric:
    labels = ("namespace", "run", "class")
    found = CounterMetricFamily("lead_run_restarts", "Restarts of a run's groups, by class of failure.", labels=labels)
    for namespace, run, restarts in shown.restarts:
        for kind in ("program", "infrastructure", "voluntary"):
            found.add_metric((namespace, run, kind), getattr(restarts, kind))
    return found


def _step_durations(instances: tuple[LiveInstance, ...]) -> Metric:
    text = "Duration of optimizer steps of rank 0, waiting for data included."
    found = HistogramMetricFamily("lead_run_step_duration_seconds", text, labels=INSTANCE)
    bounds = [*map(str, STEP_BOUNDS_S), "+Inf"]
    for each in instances:
        if len(each.record.step_counts) == len(bounds):  # an older trainer reports none
            buckets, below = [], 0
            for bound, count in zip(bounds, each.record.step_counts, strict=True):
                below += count
                buckets.append((bound, below))
            found.add_metric(each.labels, buckets, each.record.steps_s)
    return found


def _checkpoint_durations(instances: tuple[LiveInstance, ...]) -> Metric:
    text = "Time that training waited for checkpoints to be committed."
    found = SummaryMetricFamily("lead_run_checkpoint_duration_seconds", text, labels=INSTANCE)
    for each in instances:
        found.add_metric(each.labels, each.record.checkpoints, each.record.checkpoints_s)
    return found


RUNS = RunCollector()
REGISTRY.register(RUNS)
