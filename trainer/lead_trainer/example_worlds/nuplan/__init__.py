"""A small generated nuPlan tree: logs on the round streets of two made-up towns, with pictures, clouds and maps."""

from collections.abc import Mapping
from pathlib import Path

from lead_trainer.contract.example_world import ExampleWorld, Progress
from lead_trainer.errors import BadConfig

_LEAST = {"logs": 1, "seconds": 1, "blobs_every": 1, "height": 32, "width": 48, "cars": 1, "seed": 0}


def _describe(numbers: Mapping[str, int]) -> str:
    frames = 20 * numbers["seconds"] // max(numbers["blobs_every"], 1)
    return f"{numbers['logs']} logs of two cities with {frames} labelled sweeps each"


def _to_folder(root: Path, numbers: Mapping[str, int], progress: Progress) -> str:
    from lead_trainer.example_worlds.nuplan.tree import ExampleTree, write_example_tree

    for name, least in _LEAST.items():
        if numbers[name] < least:
            raise BadConfig(f"example data: {name} is {numbers[name]}, but must be at least {least}")
    tree = ExampleTree(
        logs=numbers["logs"],
        seconds=numbers["seconds"],
        blobs_every=numbers["blobs_every"],
        size=(numbers["height"], numbers["width"]),
        cars=numbers["cars"],
        seed=numbers["seed"],
    )
    write_example_tree(root, tree, progress)
    return f"{root}: {_describe(numbers)}"


WORLD = ExampleWorld(
    numbers={"logs": 10, "seconds": 20, "blobs_every": 10, "height": 108, "width": 192, "cars": 5, "seed": 0},
    describe=_describe,
    to_folder=_to_folder,
)
