"""Statuses as the operator reads them, for tests that hold them as JSON."""

from typing import Any

from lead_operator.resources.dataset_cache_status import DatasetCacheStatus
from lead_operator.resources.status_format import parse_status
from lead_operator.resources.training_run_status import TrainingRunStatus


def run_status(status: dict[str, Any]) -> TrainingRunStatus:
    """Returns the status of a TrainingRun as the operator reads it."""
    return parse_status(TrainingRunStatus, status)


def cache_status(status: dict[str, Any]) -> DatasetCacheStatus:
    """Returns the status of a DatasetCache as the operator reads it."""
    return parse_status(DatasetCacheStatus, status)
