"""Reads a status as another release may have left it: what the schema of today does not know is as if it were absent.

The API server prunes and checks what is written, not what was stored before the CRD was replaced.
"""

from typing import Any

from lead_operator.resources.crd_defaults import read_schema

_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "array": list,
}
_UNKNOWN: Any = object()


def read_status(body: dict[str, Any]) -> dict[str, Any]:
    """Returns the status of one of our resources without fields that are unknown, or of another type than today's."""
    schema = read_schema(body["kind"])["properties"]["status"]
    known = _known(body.get("status", {}), schema)
    return {} if known is _UNKNOWN else known


def _known(value: Any, schema: dict[str, Any]) -> Any:
    """Returns what is known of a value; _UNKNOWN where it does not fit at all."""
    expected = _TYPES[schema["type"]]
    if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
        return _UNKNOWN
    if isinstance(value, dict):
        return _known_object(value, schema)
    if isinstance(value, list):
        entries = [_known(entry, schema["items"]) for entry in value]
        return [entry for entry in entries if entry is not _UNKNOWN]
    return value


def _known_object(value: dict[str, Any], schema: dict[str, Any]) -> Any:
    fields, others = schema.get("properties", {}), schema.get("additionalProperties")
    known = {key: _known(entry, fields.get(key, others)) for key, entry in value.items() if fields.get(key, others)}
    known = {key: entry for key, entry in known.items() if entry is not _UNKNOWN}
    return known if all(key in known for key in schema.get("required", ())) else _UNKNOWN
