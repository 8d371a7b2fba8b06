"""The operator's metrics, for /metrics; written by its packages, read by Prometheus and by the tests."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

disable_created_metrics()  # type: ignore[no-untyped-call]  # they double the page and add nothing to a restart count
REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)  # memory, CPU, open files, start: by the names that every client library uses

RECONCILE_SECONDS = Histogram(
    "lead_reconcile_duration_seconds", "Duration of one pass over one resource.", ["kind", "result"], registry=REGISTRY,
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
)  # fmt: skip
QUEUE_DEPTH = Gauge("lead_work_queue_depth", "Keys that wait for a worker.", registry=REGISTRY)
QUEUE_AGE = Gauge("lead_work_queue_age_seconds", "How long the oldest key has waited for a worker.", registry=REGISTRY)
API_CALLS = Counter(
    "lead_api_calls", "Calls to the API server; code 0 is no answer.", ["verb", "resource", "code"], registry=REGISTRY
)
API_SECONDS = Histogram(
    "lead_api_call_duration_seconds", "Duration of calls to the API server.", ["verb"], registry=REGISTRY,
    buckets=(0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
)  # fmt: skip
STORE_SECONDS = Histogram(
    "lead_store_read_duration_seconds", "Duration of one read of the bucket.", ["result"], registry=REGISTRY,
    buckets=(0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
)  # fmt: skip
RESOURCES = Gauge("lead_resources", "Custom resources by phase.", ["kind", "phase"], registry=REGISTRY)
RESTARTS = Counter("lead_restarts", "Groups replaced, by class of failure.", ["class"], registry=REGISTRY)
WATCH_AGE = Gauge("lead_watch_age_seconds", "Time since a watch's last sign of life.", ["watch"], registry=REGISTRY)
SERVED = Gauge(
    "lead_namespace_served", "1 while the API server shows a namespace for runs; 0: it, or a right, is gone.",
    ["namespace"], registry=REGISTRY,
)  # fmt: skip
LEADER = Gauge("lead_leader", "1 while this process holds the lease.", registry=REGISTRY)


@dataclass
class CallOutcome:
    """The HTTP status of a call; 0 until there is one."""

    code: int = 0


@contextmanager
def api_call(verb: str, resource: str) -> Iterator[CallOutcome]:
    """Counts one call to the API server with its outcome and, watches apart, its duration."""
    outcome, started = CallOutcome(), time.monotonic()
    try:
        yield outcome
    finally:
        API_CALLS.labels(verb, resource, str(outcome.code)).inc()
        if verb != "watch":
            API_SECONDS.labels(verb).observe(time.monotonic() - started)


def exposition() -> bytes:
    """Returns all metrics in Prometheus' text format."""
    return generate_latest(REGISTRY)
