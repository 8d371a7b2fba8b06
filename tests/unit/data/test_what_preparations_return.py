"""What a preparation returns is checked where a build takes it: the error names the method, found and expected."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lead_testing.bytes_recipe import BytesPreparation, MemoryTree, bytes_recipe
from lead_trainer.contract.checked_parts import BadPart
from lead_trainer.contract.raw_data import SampleKey
from lead_trainer.contract.recipe import Recipe
from lead_trainer.data import preparation_results as results
from lead_trainer.data.part_counts import summed

KEY, TREE = SampleKey("r0", 0), MemoryTree({"r0/0": b"a", "r0/1": b"b"})
Made = Callable[[Recipe[Any]], Any]

ASKED: dict[str, Made] = {
    "config_keys": lambda recipe: results.config_keys(recipe, {}),
    "collections_for": lambda recipe: results.collections_for(recipe, {}),
    "scan": lambda recipe: results.scanned(recipe, TREE, {}, ["all"]),
    "record": lambda recipe: results.record(recipe, TREE, {}, KEY),
    "stage_fields": lambda recipe: results.stage_fields(recipe, TREE, {}, "masks", KEY),
    "route_metas": lambda recipe: results.route_metas(recipe, TREE, {}, "r0", [0, 1]),
    "counts": lambda recipe: results.counts(recipe, {}, KEY, {}),
    "facts": lambda recipe: results.facts(recipe, {}, {}),
}
WRONG: list[tuple[str, Any, str]] = [
    ("config_keys", None, "returned NoneType None, expected Mapping"),
    ("config_keys", {"a": np.zeros(1)}, "are no JSON values"),
    ("collections_for", "train", "returned str 'train', expected list or tuple"),
    ("scan", None, "returned NoneType None, expected Scan"),
    ("record", [b"a"], "returned list .*, expected Mapping"),
    ("record", {"data": "a"}, "returned str 'a' as field 'data'; bytes by name are expected"),
    ("stage_fields", {"data": 3}, "returned int 3 as field 'data'"),
    ("route_metas", None, "returned NoneType None, expected Table"),
    ("route_metas", pa.table({"frame": [0]}), "returned 1 rows of route r0, which has 2 frames"),
    ("counts", {"a": np.array([0.5])}, "as 'a'; an array of whole numbers in one axis is expected"),
    ("counts", {"a": 3}, "returned 3 as 'a'"),
    ("facts", {"mean": ["a"]}, "as 'mean'; a list of numbers is expected"),
]


@pytest.mark.parametrize(("method", "result", "told"), WRONG)
def test_a_wrong_result_of_a_preparation_names_its_method(method: str, result: Any, told: str) -> None:
    preparation = type("Odd", (BytesPreparation,), {method: lambda self, *given: result})()
    with pytest.raises(
        BadPart, match=f"recipe 'bytes': preparation.{method} {'returned' if 'JSON' in told else ''}.*{told}"
    ):
        ASKED[method](bytes_recipe(preparation))


def test_counts_of_unequal_length_are_not_added_up() -> None:
    records: list[Mapping[str, Any]] = [{"a": np.array([1])}, {"a": np.array([1, 2])}]
    with pytest.raises(BadPart, match=r"preparation\.counts: 'a' has 2 numbers in one record and 1 in another"):
        summed(records)
