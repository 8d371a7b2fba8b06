"""What /metrics shows of runs: the newest report in Prometheus' words, of the attempt that the status is at."""

from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from lead_operator.resources.training_run_status import InstanceStatus, ProgressStatus, RestartsStatus
from lead_operator.run_metrics import KINDS, NOTHING, LiveInstance, RunCollector, Snapshot
from lead_protocol.progress_record import STEP_BOUNDS_S

LABELS = {"namespace": "team-a", "run": "drive", "stage": "train", "seed": "3"}
COUNTS = [2, 0, 1, *[0] * (len(STEP_BOUNDS_S) - 4), 4]
RECORD: dict[str, Any] = {
    "step_counts": [*COUNTS, 5], "steps_s": 321.5, "checkpoints": 3, "checkpoints_s": 7.5, "cache_hits": 90,
    "cache_misses": 10, "cache_fetched_bytes": 4096, "cache_degraded_ranks": [0, 3], "loading_s": {"wait": 1.5},
    "gpu_memory_bytes": 7, "gpu_memory_total_bytes": 80, "gpu_busy": 0.875, "loss": 0.25,
}  # fmt: skip


@pytest.fixture
def shown() -> Iterator[Any]:
    """Returns the value of a series, None where there is none, of a snapshot with one instance."""
    collector, registry = RunCollector(), CollectorRegistry()
    registry.register(collector)

    def value(name: str, record: dict[str, Any] = RECORD, **labels: str) -> float | None:
        progress = ProgressStatus(epoch=1, epochs=4, step=7, steps=40, milli_samples_per_second=1500)
        instance = LiveInstance(
            namespace="team-a", run="drive", record=NOTHING.model_copy(update=record),
            entry=InstanceStatus(name="train", seed=3, attempt=2, progress=progress),
        )  # fmt: skip
        restarts = ("team-a", "drive", RestartsStatus(total=3, program=1, infrastructure=2))
        runs = (("team-a", "drive", "Running"),)
        collector.snapshot = Snapshot(runs=runs, restarts=(restarts,), instances=(instance,))
        return registry.get_sample_value(name, LABELS | labels)

    yield value


def test_buckets_hold_all_that_took_no_longer(shown: Any) -> None:
    bucket = "lead_run_step_duration_seconds_bucket"
    assert [shown(bucket, le=le) for le in ("0.01", "0.025", "0.05", "10.0", "30.0", "+Inf")] == [2, 2, 3, 3, 7, 12]
    assert shown("lead_run_step_duration_seconds_count") == 12 == sum(RECORD["step_counts"])
    assert shown("lead_run_step_duration_seconds_sum") == 321.5
    assert (
        shown("lead_run_checkpoint_duration_seconds_sum") / shown("lead_run_checkpoint_duration_seconds_count") == 2.5
    )


def test_counters_and_gauges_are_the_records(shown: Any) -> None:
    assert shown("lead_run_session_cache_reads_total", result="hit") == 90
    assert shown("lead_run_fetched_bytes_total") == 4096
    assert shown("lead_run_session_cache_degraded_ranks") == 2
    assert shown("lead_run_loading_seconds_total", loading_stage="wait") == 1.5
    assert (shown("lead_run_step"), shown("lead_run_steps"), shown("lead_run_samples_per_second")) == (7, 40, 1.5)
    assert shown("lead_run_gpu_memory_used_bytes") / shown("lead_run_gpu_memory_bytes") == 7 / 80
    assert shown("lead_run_gpu_utilization_ratio") == 0.875


def test_what_nobody_measured_has_no_series(shown: Any) -> None:
    """A run on CPUs has no GPU, and a trainer of an older image counts no steps."""
    for name in (
        "gpu_utilization_ratio",
        "gpu_memory_bytes",
        "loss",
        "step_duration_seconds_count",
        "report_age_seconds",
    ):
        assert shown(f"lead_run_{name}", {}) is None, name


def test_names_and_units_follow_the_conventions() -> None:
    units = ("_seconds", "_bytes", "_ratio")
    for kind in KINDS:
        assert kind.name.startswith("lead_run_") and kind.help.endswith("."), kind.name
        assert "_ms" not in kind.name and not kind.name.endswith("_total"), kind.name
        if kind.help.startswith("Time"):
            assert kind.name.endswith(units), kind.name
