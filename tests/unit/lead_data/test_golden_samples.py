"""Samples equal those of LEAD's own loader on the same tree: integers bit for bit, floats to 1e-6."""

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lead_testing import shared_dir
from lead_trainer.data.cache_tables import (
    ROUTE_COLUMN,
    CollectionRows,
    MetaColumns,
    Placement,
    collection_rows,
    collection_table,
    read_table,
    write_table,
)
from lead_trainer.data.record import decode_record, encode_record
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.recipes.lead.config_values import load_config
from lead_trainer.recipes.lead.dataset import LeadSamples
from lead_trainer.recipes.lead.preparation import LeadPreparation
from lead_trainer.recipes.recipe import Scan

FOLDER = "golden/lead_data"
VOLATILE = {"loading_time", "loading_meta_time", "loading_sensor_time"}


@cache
def golden() -> dict[str, Any]:
    samples: dict[str, Any] = json.loads((shared_dir() / FOLDER / "samples.json").read_text())["samples"]
    return samples


@cache
def values() -> Mapping[str, np.ndarray]:
    return dict(np.load(shared_dir() / FOLDER / "samples.npz"))


class PreparedOnDemand:
    """A cache in memory that prepares a sample when it is asked for, through the same bytes as a real one."""

    def __init__(self, collection: str) -> None:
        self._preparation = LeadPreparation()
        self._tree = FolderTree(shared_dir() / FOLDER / "carla_leaderboard2")
        self.config = self._preparation.config_keys({})
        self._collection = collection
        self._scan: Scan = self._preparation.scan(self._tree, self.config, [collection])

    def rows(self, collection: str) -> CollectionRows:
        count = len(self._scan.samples)
        nowhere = Placement(np.zeros(count, np.int64), np.arange(count), 1)
        table = collection_table(self._scan.collections[0], self._scan.samples, nowhere)
        return collection_rows(collection, write_table(table))

    def metas(self) -> MetaColumns:
        wanted = {(e["scenario"], e["route"], e["frame"]) for e in golden().values()}
        tables = []
        for scenario, route, frame in sorted(wanted):
            path = f"data/{scenario}/{route}"
            table = self._preparation.route_metas(self._tree, self.config, path, [frame])
            tables.append(table.append_column(ROUTE_COLUMN, [[path]]))
        return MetaColumns(read_table(write_table(pa.concat_tables(tables)), "metas"))

    def fields(self, sample: int) -> Mapping[str, memoryview]:
        return dict(_record(self, sample).fields)


@cache
def _record(cache_: PreparedOnDemand, sample: int) -> Any:
    key = cache_._scan.samples[sample]
    fields = cache_._preparation.record(cache_._tree, cache_.config, key)
    return decode_record(encode_record(sample, fields))


@cache
def samples_of(planner: bool) -> LeadSamples:
    config = load_config({"use_planning_decoder": planner, "compat": "lead", "use_color_aug": False})
    return LeadSamples(config, PreparedOnDemand("full_pretrain"))  # both stages were measured on this list


def expected_entry(tag: str) -> dict[str, Any]:
    """Returns every key's expected description; `pretrain` entries list differences to `planner`."""
    entry = golden()[tag]
    if "out" in entry:
        return dict(entry["out"])
    same = dict(golden()[entry["same_as"]]["out"])
    for key in entry["missing_vs_planner"]:
        del same[key]
    return {**same, **entry["different_or_new_vs_planner"]}


def stored(tag: str, key: str, part: str = "") -> np.ndarray | None:
    entry = golden()[tag]
    found = values().get(f"{tag}/{key}{part}")
    return found if found is not None or "same_as" not in entry else values().get(f"{entry['same_as']}/{key}{part}")


def mismatch(tag: str, key: str, expected: Mapping[str, Any], found: Any) -> str:
    """Returns how a value differs from LEAD's, or nothing."""
    if expected["kind"] != "ndarray":
        value = float(expected["value"]) if expected["kind"] == "float" else expected["value"]  # JSON has no infinity
        if isinstance(value, float) and isinstance(found, float):
            return "" if np.isclose(found, value, rtol=0, atol=1e-6) or found == value else f"{found} != {value}"
        return (
            "" if found == value and isinstance(found, bool) == isinstance(value, bool) else f"{found!r} != {value!r}"
        )
    if list(found.shape) != expected["shape"] or str(found.dtype) != expected["dtype"]:
        return f"{found.shape} {found.dtype} != {expected['shape']} {expected['dtype']}"
    if hashlib.sha256(np.ascontiguousarray(found).tobytes()).hexdigest() == expected["sha256"]:
        return ""
    if not np.issubdtype(found.dtype, np.floating):
        return "bytes differ"
    return float_mismatch(tag, key, found)


def float_mismatch(tag: str, key: str, found: np.ndarray) -> str:
    """Compares floats with the stored full array, or with all non-zero entries and 256 picked ones."""
    full = stored(tag, key)
    if full is not None:
        worst = float(np.abs(full - found).max())
        return "" if worst <= 1e-6 else f"differs by {worst}"
    flat = found.reshape(-1)
    picked = (np.arange(256, dtype=np.int64) * 2654435761) % flat.size
    pick = stored(tag, key, "@256")
    if pick is None or np.abs(flat[picked] - pick).max() > 1e-6:
        return "picked entries differ"
    where, what = stored(tag, key, "@nz_idx"), stored(tag, key, "@nz_val")
    if where is not None and what is not None:
        dense = np.zeros_like(flat)
        dense[where] = what
        return "" if np.abs(dense - flat).max() <= 1e-6 else "non-zero entries differ"
    return ""


TAGS = [
    f"{frame}/{stage}/{view}"
    for frame, stages in {
        "a101_f08": 2, "a101_f22_last_pretrain": 1, "a102_f09_crowd": 2, "a104_f01_short": 1, "c201_f09_grid_dup": 2,
        "c201_f11_nopert": 2, "c202_f08_green": 2, "c202_f10_europe_special": 2, "c203_f09_depth16": 2,
        "c204_f01_short_empty": 1, "s301_f12_red_brake": 2, "s301_f15_late": 2, "s302_f08_parkingcutin": 2,
        "s302_f13_door_closed": 2, "s302_f14_door_left": 2, "s302_f15_door_right": 2,
    }.items()
    for stage in ("planner", "pretrain")[2 - stages :]
    for view in ("normal", "pert")
]  # fmt: skip


@pytest.mark.parametrize("tag", TAGS)
def test_a_sample_equals_leads_in_every_key(tag: str) -> None:
    entry, expected = golden()[tag], expected_entry(tag)
    samples = samples_of(entry["planner"])
    rows = samples._rows
    path = f"data/{entry['scenario']}/{entry['route']}"
    (index,) = np.flatnonzero((rows.route == path) & (rows.frame == entry["frame"]))
    sample = samples.sample(int(index), perturbed=entry["perturbated"])
    sample["rgb"] = np.ascontiguousarray(sample["rgb"].transpose(2, 0, 1))
    assert set(sample) == set(expected) - VOLATILE, set(sample) ^ (set(expected) - VOLATILE)
    wrong = {key: mismatch(tag, key, expected[key], value) for key, value in sample.items()}
    assert {key: text for key, text in wrong.items() if text} == {}
