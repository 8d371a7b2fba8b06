"""Samples that LEAD's own loader made from a tree in the shared folder, and how far ours are from them, key by key."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np

from lead_testing import shared_dir
from lead_testing.on_demand_cache import OnDemandCache
from lead_trainer.data.cache_tables import CollectionRows
from lead_trainer.recipes.lead.config_values import load_config
from lead_trainer.recipes.lead.dataset import LeadSamples
from lead_trainer.recipes.lead.recipe import RECIPE, on_device

FOLDER = "golden/lead_data"
VOLATILE = {"loading_time", "loading_meta_time", "loading_sensor_time"}
FLOATS_WITHIN = 1e-6  # relative; integers, booleans and texts must be the same
COLLECTION = "full_pretrain"  # both stages were measured on this list


@cache
def golden() -> dict[str, Any]:
    """Returns the description of every sample by tag."""
    samples: dict[str, Any] = json.loads((shared_dir() / FOLDER / "samples.json").read_text())["samples"]
    return samples


@cache
def values() -> Mapping[str, np.ndarray]:
    """Returns the stored arrays."""
    return dict(np.load(shared_dir() / FOLDER / "samples.npz"))


def expected_entry(tag: str) -> dict[str, Any]:
    """Returns every key's expected description; `pretrain` entries list differences to `planner`."""
    entry = golden()[tag]
    if "out" in entry:
        return {key: value for key, value in entry["out"].items() if key not in VOLATILE}
    same = expected_entry(entry["same_as"])
    for key in entry["missing_vs_planner"]:
        same.pop(key, None)
    changed = entry["different_or_new_vs_planner"]
    return {**same, **{key: value for key, value in changed.items() if key not in VOLATILE}}


@cache
def _samples(planner: bool) -> LeadSamples:
    config = load_config({"use_planning_decoder": planner, "compat": "lead", "use_color_aug": False})
    return LeadSamples(config, _cache())


class _OneList(OnDemandCache):
    """Gives both stages the list on which both were measured."""

    def rows(self, collection: str) -> CollectionRows:
        return super().rows(COLLECTION)


@cache
def _cache() -> OnDemandCache:
    return _OneList(shared_dir() / FOLDER / "carla_leaderboard2", {}, [COLLECTION])


def row_of(tag: str, rows: CollectionRows) -> int:
    """Returns which row of the collection a recorded sample is."""
    entry = golden()[tag]
    route = f"data/{entry['scenario']}/{entry['route']}"
    (index,) = np.flatnonzero(rows.route.isin(frozenset([route])) & (rows.frame == entry["frame"]))
    return int(index)


def deviations(tag: str) -> Iterator[tuple[str, float]]:
    """Yields (key, deviation) of one sample of ours."""
    entry = golden()[tag]
    samples = _samples(entry["planner"])
    sample = samples.sample(row_of(tag, samples._rows), perturbed=entry["perturbated"])
    (row,) = rows_of(on_device(RECIPE.collate([sample]), samples._config))
    yield from compared(tag, row)


def rows_of(batch: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields a batch sample by sample: arrays, and Python's own types for scalars."""
    for row in range(len(batch["index"])):
        parts = {key: value[row] for key, value in batch.items()}
        yield {
            key: part if isinstance(part, str) else part.item() if part.ndim == 0 else part.numpy()
            for key, part in parts.items()
        }


def compared(tag: str, sample: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yields (key, deviation): 0 for the same bytes, infinity where kind, shape or an integer differs."""
    expected = expected_entry(tag)
    for key in sorted(sample.keys() | expected.keys()):
        if key not in sample or key not in expected:
            yield key, float("inf")
        else:
            yield key, _deviation(tag, key, expected[key], sample[key])


def _deviation(tag: str, key: str, expected: Mapping[str, Any], found: Any) -> float:
    if expected["kind"] != "ndarray":
        value = float(expected["value"]) if expected["kind"] == "float" else expected["value"]
        if isinstance(value, float) and isinstance(found, float):
            return _worst(np.array(value), np.array(found))
        return 0.0 if found == value and isinstance(found, bool) == isinstance(value, bool) else float("inf")
    if list(found.shape) != expected["shape"] or str(found.dtype) != expected["dtype"]:
        return float("inf")
    if hashlib.sha256(np.ascontiguousarray(found).tobytes()).hexdigest() == expected["sha256"]:
        return 0.0
    return _float_deviation(tag, key, found) if np.issubdtype(found.dtype, np.floating) else float("inf")


def _float_deviation(tag: str, key: str, found: np.ndarray) -> float:
    """Compares with the stored full array, or with all non-zero entries and 256 picked ones."""
    full = _stored(tag, key)
    if full is not None:
        return _worst(full, found)
    flat = found.reshape(-1)
    pick = _stored(tag, key, "@256")
    if pick is None:
        return float("inf")
    worst = _worst(flat[(np.arange(256, dtype=np.int64) * 2654435761) % flat.size], pick)
    where, what = _stored(tag, key, "@nz_idx"), _stored(tag, key, "@nz_val")
    if where is not None and what is not None:
        dense = np.zeros_like(flat)
        dense[where] = what
        worst = max(worst, _worst(dense, flat))
    return worst


def _worst(expected: np.ndarray, found: np.ndarray) -> float:
    """Returns the largest relative difference, infinity where only one of two numbers is 0, NaN or infinite."""
    same = (expected == found) | (np.isnan(expected) & np.isnan(found))
    with np.errstate(divide="ignore", invalid="ignore"):
        differences = np.where(same, 0.0, np.abs(expected - found) / np.abs(expected))
    return float(np.nan_to_num(differences, nan=np.inf, posinf=np.inf).max(initial=0.0))


def _stored(tag: str, key: str, part: str = "") -> np.ndarray | None:
    entry = golden()[tag]
    found = values().get(f"{tag}/{key}{part}")
    return found if found is not None or "same_as" not in entry else values().get(f"{entry['same_as']}/{key}{part}")
