"""Statuses as tests hold them: JSON as the API server stores it, and the model that the operator reads of it."""

from typing import Any

from lead_operator.resources.dataset_cache_status import DatasetCacheStatus
from lead_operator.resources.status_format import parse_status
from lead_operator.resources.training_run_status import TrainingRunStatus


def find_condition(status: dict[str, Any], kind: str) -> dict[str, Any] | None:
    """Returns the condition of one type, or None."""
    found: list[dict[str, Any]] = [each for each in status.get("conditions", []) if each["type"] == kind]
    return found[0] if found else None


def run_status(status: dict[str, Any]) -> TrainingRunStatus:
    """Returns the status of a TrainingRun as the operator reads it."""
    return parse_status(TrainingRunStatus, status)


def cache_status(status: dict[str, Any]) -> DatasetCacheStatus:
    """Returns the status of a DatasetCache as the operator reads it."""
    return parse_status(DatasetCacheStatus, status)


def newest_entry(status: dict[str, Any]) -> dict[str, Any]:
    """Returns the entry in status.stages of the last stage instance that has begun; an empty one where none has."""
    begun: list[dict[str, Any]] = [entry for entry in status.get("stages") or [] if entry.get("attempt")]
    return {"progress": {}, "checkpoint": {}, **(begun[-1] if begun else {})}
