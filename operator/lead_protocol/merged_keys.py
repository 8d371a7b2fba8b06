"""Merges layers of a configuration: a file, spec.config, a stage's, a command line's. Pure."""

from collections.abc import Mapping
from typing import Any


def merged_keys(*sources: Mapping[str, Any]) -> dict[str, Any]:
    """Returns each key by the last source that has it; where it is a mapping in two of them, theirs are merged too."""
    merged: dict[str, Any] = {}
    for source in sources:
        for key, value in source.items():
            both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
            merged[key] = merged_keys(merged[key], value) if both else value
    return merged
