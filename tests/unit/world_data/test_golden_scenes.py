"""Scenes, actions, windows and baselines of the reference tree are those that nuscenes-devkit and others give."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lead_testing import shared_dir
from lead_testing.golden.nuscenes import numbers
from lead_trainer.example_worlds.world.tree import ExampleTree, write_example_tree

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


@pytest.mark.parametrize(
    "tree",
    [
        ExampleTree(train=1, val=0, keyframes=2, size=(32, 48)),
        ExampleTree(train=0, val=1, keyframes=3, size=(32, 48), without_can=1),
        ExampleTree(train=2, val=2, keyframes=3, size=(48, 32), sweeps=True, without_can=4, seed=3),
        ExampleTree(train=4, val=0, keyframes=6, size=(32, 48), twins=True),
    ],
)
def test_trees_of_other_shapes_go_through_the_same_command(tree: ExampleTree, tmp_path: Path) -> None:
    names = write_example_tree(tmp_path, tree)
    found = json.loads(json.dumps(numbers(str(tmp_path)), allow_nan=False))
    assert sorted(found["scenes"]) == names == sorted(names)
    assert set(found["baselines"]) == {split for split in ("train", "val") if getattr(tree, split)}
    for number, name in enumerate(names):
        scene = found["scenes"][name]
        assert scene["has_can"] == (number < len(names) - tree.without_can)
        pictures = {"keyframes": tree.keyframes, "sweeps": (tree.keyframes - 1) * (6 if tree.sweeps else 1) + 1}
        for frames, count in pictures.items():
            assert [len(scene["frames"][frames][key]) for key in ("files", "timestamps")] == [count] * 2
            assert [len(scene["frames"][frames][key]) for key in ("actions", "actions_from_poses")] == [count - 1] * 2
            assert scene["frames"][frames]["windows"]["length 5 skip 1"] == max(0, count - 4)
