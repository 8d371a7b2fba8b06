"""Every field of a CRD's schema with its path, for tests that hold all of them to a rule."""

from collections.abc import Iterator
from typing import Any

KINDS = ("TrainingRun", "DatasetCache")


def crd_fields(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields path and schema of a field and all below it: `.spec.stages`, `.spec.stages[]`, `.spec.stages[].name`."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from crd_fields(child, f"{path}.{name}")
    for key, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if key in schema:
            yield from crd_fields(schema[key], path + suffix)
