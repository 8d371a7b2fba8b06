"""Parts of a status as the API server stores it, JSON; the demo imports this before anything is installed."""

from typing import Any


def find_condition(status: dict[str, Any], kind: str) -> dict[str, Any] | None:
    """Returns the condition of one type, or None."""
    found: list[dict[str, Any]] = [each for each in status.get("conditions", []) if each["type"] == kind]
    return found[0] if found else None


def newest_entry(status: dict[str, Any]) -> dict[str, Any]:
    """Returns the entry in status.stages of the last stage instance that has begun; an empty one where none has."""
    begun: list[dict[str, Any]] = [entry for entry in status.get("stages") or [] if entry.get("attempt")]
    return {"progress": {}, "checkpoint": {}, **(begun[-1] if begun else {})}
