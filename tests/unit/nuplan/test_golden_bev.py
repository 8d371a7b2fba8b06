"""Metrics and losses equal those of public packages, on input that was made for it."""

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

from lead_testing import shared_dir
from lead_testing.golden import bev

PARTS = ("detection", "grids", "trajectories", "collisions", "comfort", "losses")


@pytest.fixture(scope="module")
def numbers() -> tuple[dict[str, Any], dict[str, Any]]:
    folder = shared_dir() / "golden/nuplan"
    return json.loads((folder / "bev.json").read_text()), bev.numbers(str(folder / "bev.npz"))


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict | list):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, f"{path}/{name}")
    else:
        yield path, value


@pytest.mark.parametrize("part", PARTS)
def test_n_19_to_n_23_and_n_42_to_n_49_numbers_are_those_of_the_kits(
    numbers: tuple[dict[str, Any], dict[str, Any]], part: str
) -> None:
    expected, found = dict(leaves(numbers[0][part])), dict(leaves(numbers[1][part]))
    assert expected
    for name, value in expected.items():
        if value is None:
            assert found[name] is None, name
        else:
            assert math.isclose(found[name], value, rel_tol=1e-6, abs_tol=1e-6), (name, found[name], value)
