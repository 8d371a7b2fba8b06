"""Scenes, actions, windows and baselines of the reference tree are those that nuscenes-devkit and others give."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lead_testing import shared_dir
from lead_testing.golden.nuscenes import numbers

TOLERANCE = 1e-6
PIXEL_MEANS, BY_A_FILTER = "mean_rgb_256", 1.0  # another good filter may differ by that


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields every number and text of a document with its path."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if entries is None:
        yield path, value
        return
    for key, inner in entries:
        yield from leaves(inner, f"{path}/{key}")


def same(path: str, wanted: Any, found: Any) -> bool:
    if isinstance(wanted, float) and not isinstance(found, str):
        spread = BY_A_FILTER if PIXEL_MEANS in path else TOLERANCE
        return math.isclose(wanted, found, rel_tol=TOLERANCE, abs_tol=spread)
    return bool(wanted == found)


def test_w_01_and_w_03_and_w_11_every_number_is_that_of_the_devkit(golden: Path) -> None:
    expected = json.loads((shared_dir() / "golden/nuscenes_world/expected.json").read_text())
    found = dict(leaves(numbers(str(golden))))
    wanted = dict(leaves(expected))
    assert len(wanted) > 6000 and wanted.keys() == found.keys()
    assert [path for path, value in wanted.items() if not same(path, value, found[path])] == []
