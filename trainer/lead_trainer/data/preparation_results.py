"""What a recipe's preparation returns, checked where a build takes it: a wrong result is one sentence with its part."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lead_trainer.contract.checked_parts import BadPart
from lead_trainer.contract.preparation import Counts, Fields
from lead_trainer.contract.raw_data import SampleKey, Scan, SourceTree
from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.results import returned, short


def config_keys(recipe: Recipe[Any], values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the keys that enter a cache's digest, JSON values."""
    found = recipe.required_preparation.config_keys(values)
    keys: Mapping[str, Any] = _result(recipe, "config_keys", found, Mapping)
    try:
        json.dumps(dict(keys), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise _bad(recipe, "config_keys", f"{short(dict(keys))}, which are no JSON values ({error})") from error
    return keys


def collections_for(recipe: Recipe[Any], values: Mapping[str, Any]) -> list[str]:
    """Returns what a cache holds that names no collection."""
    found = recipe.required_preparation.collections_for(values)
    return list(_result(recipe, "collections_for", found, list, tuple))


def scanned(recipe: Recipe[Any], tree: SourceTree, config: Mapping[str, Any], collections: Sequence[str]) -> Scan:
    """Returns what a raw tree holds."""
    scan: Scan = _result(recipe, "scan", recipe.required_preparation.scan(tree, config, collections), Scan)
    if len(scan.estimated_bytes) != len(scan.samples):
        problem = f"estimated_bytes of {len(scan.estimated_bytes)} samples, of {len(scan.samples)}"
        raise _bad(recipe, "scan", problem)
    return scan


def record(recipe: Recipe[Any], tree: SourceTree, config: Mapping[str, Any], sample: SampleKey) -> Fields:
    """Returns the named fields of one sample's record."""
    return _fields(recipe, "record", recipe.required_preparation.record(tree, config, sample))


def stage_fields(
    recipe: Recipe[Any], tree: SourceTree, config: Mapping[str, Any], stage: str, sample: SampleKey
) -> Fields:
    """Returns the named fields that a stage makes of one sample."""
    return _fields(recipe, "stage_fields", recipe.required_preparation.stage_fields(tree, config, stage, sample))


def route_metas(
    recipe: Recipe[Any], tree: SourceTree, config: Mapping[str, Any], route: str, frames: Sequence[int]
) -> pa.Table:
    """Returns the metas of a route, a row a frame."""
    table = _result(
        recipe, "route_metas", recipe.required_preparation.route_metas(tree, config, route, frames), pa.Table
    )
    if table.num_rows != len(frames):
        raise _bad(recipe, "route_metas", f"{table.num_rows} rows of route {route}, which has {len(frames)} frames")
    return table


def counts(
    recipe: Recipe[Any], config: Mapping[str, Any], sample: SampleKey, fields: Mapping[str, memoryview]
) -> Counts:
    """Returns the counts of one record by name, whole numbers in one axis."""
    found: Counts = _result(recipe, "counts", recipe.required_preparation.counts(config, sample, fields), Mapping)
    for name, values in found.items():
        if not isinstance(values, np.ndarray) or values.ndim != 1 or values.dtype.kind not in "iu":
            raise _bad(
                recipe, "counts", f"{short(values)} as {name!r}; an array of whole numbers in one axis is expected"
            )
    return found


def facts(recipe: Recipe[Any], config: Mapping[str, Any], sums: Counts) -> Mapping[str, Sequence[float]]:
    """Returns the facts of a cache, lists of numbers by name."""
    found: Mapping[str, Sequence[float]] = _result(
        recipe, "facts", recipe.required_preparation.facts(config, sums), Mapping
    )
    for name, values in found.items():
        if not isinstance(values, list | tuple) or not all(isinstance(one, int | float) for one in values):
            raise _bad(recipe, "facts", f"{short(values)} as {name!r}; a list of numbers is expected")
    return found


def _fields(recipe: Recipe[Any], method: str, found: Any) -> Fields:
    fields: Fields = _result(recipe, method, found, Mapping)
    for name, value in fields.items():
        if not isinstance(name, str) or not isinstance(value, bytes | bytearray | memoryview):
            problem = f"{type(value).__name__} {short(value)} as field {name!r}; bytes by name are expected"
            raise _bad(recipe, method, problem)
    return fields


def _result(recipe: Recipe[Any], method: str, value: Any, *kinds: type) -> Any:
    return returned(recipe.name, f"preparation.{method}", value, *kinds)


def _bad(recipe: Recipe[Any], method: str, found: str) -> BadPart:
    return BadPart(f"recipe {recipe.name!r}: preparation.{method} returned {found}")
