"""From the copies of runs and caches, and the newest reports, to what one page of metrics shows of them."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from lead_operator import names
from lead_operator.decisions.formatting import parse_time
from lead_operator.kube.copies import is_finished
from lead_operator.kube.informers import Informers
from lead_operator.kube.kinds import DATASET_CACHE, TRAINING_RUN
from lead_operator.memory import Memories
from lead_operator.resources.dataset_cache_status import DatasetCacheStatus
from lead_operator.resources.status_format import parse_status
from lead_operator.resources.training_run_status import InstanceStatus, RestartsStatus, TrainingRunStatus
from lead_operator.run_metrics import NOTHING, LiveInstance, NewestReports, Snapshot


def read_snapshot(informers: Informers, memories: Memories, now: datetime) -> Snapshot:
    """Returns phases of everything, and the newest reports of runs that are seen and have not ended."""
    runs, restarts, live = [], [], list[LiveInstance]()
    for body in informers.all(TRAINING_RUN):
        status, meta = parse_status(TrainingRunStatus, body.get("status")), body["metadata"]
        runs.append((meta["namespace"], meta["name"], status.phase or "New"))
        if is_finished(body):
            continue
        restarts.append((meta["namespace"], meta["name"], status.restarts or RestartsStatus()))
        # If nothing is observed any more, the last report is no evidence about the run.
        if status.phase == names.RunPhase.RUNNING and informers.serves(meta["namespace"]):
            reports = memories.find(meta["uid"], NewestReports) or NewestReports()
            live += _instances(meta, status, reports, now)
    caches = (
        (body["metadata"]["namespace"], body["metadata"]["name"], status.phase or "New")
        for body in informers.all(DATASET_CACHE)
        for status in (parse_status(DatasetCacheStatus, body.get("status")),)
    )
    return Snapshot(runs=tuple(runs), caches=tuple(caches), restarts=tuple(restarts), instances=tuple(live))


def _instances(
    meta: dict[str, Any], status: TrainingRunStatus, reports: NewestReports, now: datetime
) -> Iterator[LiveInstance]:
    for entry in status.stages:
        if entry.phase != names.RunPhase.RUNNING or entry.progress is None:
            continue
        record = reports.records.get(entry.key)
        yield LiveInstance(
            namespace=meta["namespace"],
            run=meta["name"],
            entry=entry,
            record=record if record is not None and record.attempt == entry.attempt else NOTHING,
            attempt_age_s=_age_s(entry.restart_state.attempt_time if entry.restart_state else None, now),
            report_age_s=_age_s(entry.progress.reported_at, now),
            step_age_s=_age_s(entry.progress.advanced_at, now),
            checkpoint_age_s=_checkpoint_age_s(entry, now),
        )


def _checkpoint_age_s(entry: InstanceStatus, now: datetime) -> float | None:
    return _age_s(entry.checkpoint.saved_at if entry.checkpoint else None, now)


def _age_s(moment: str | None, now: datetime) -> float | None:
    found = parse_time(moment)
    return None if found is None else max(0.0, (now - found).total_seconds())
