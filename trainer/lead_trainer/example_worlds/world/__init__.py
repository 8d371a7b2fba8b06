"""A small generated nuScenes tree: drives over coloured plains, whose pictures follow from pedals and wheel."""

from collections.abc import Mapping
from pathlib import Path

from lead_trainer.contract.example_world import ExampleWorld, Progress
from lead_trainer.errors import BadConfig
from lead_trainer.example_worlds.world.tree import ExampleTree, write_example_tree

_LEAST = {"train": 1, "val": 1, "keyframes": 2, "height": 16, "width": 16, "twins": 0, "sweeps": 0, "seed": 0}


def _describe(numbers: Mapping[str, int]) -> str:
    return f"{numbers['train']} scenes for training and {numbers['val']} for validation"


def _to_folder(root: Path, numbers: Mapping[str, int], progress: Progress) -> str:
    for name, least in _LEAST.items():
        if numbers[name] < least:
            raise BadConfig(f"example data: {name} is {numbers[name]}, but must be at least {least}")
    tree = ExampleTree(
        train=numbers["train"],
        val=numbers["val"],
        keyframes=numbers["keyframes"],
        size=(numbers["height"], numbers["width"]),
        seed=numbers["seed"],
        sweeps=bool(numbers["sweeps"]),
        twins=bool(numbers["twins"]),
    )
    written = len(write_example_tree(root, tree))
    progress(written, written)
    return f"{root}: {_describe(numbers)}"


WORLD = ExampleWorld(
    numbers={"train": 8, "val": 2, "keyframes": 16, "height": 90, "width": 160, "twins": 0, "sweeps": 0, "seed": 0},
    describe=_describe,
    to_folder=_to_folder,
)
