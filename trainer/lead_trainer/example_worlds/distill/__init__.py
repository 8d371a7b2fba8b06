"""A small generated raw tree: clips of cars on bending roads with scripted labels, for tests and a first run."""

from collections.abc import Mapping
from pathlib import Path

from lead_trainer.contract.example_world import ExampleWorld, Progress
from lead_trainer.errors import BadConfig
from lead_trainer.example_worlds.distill.tree import write_example_tree

_LEAST = {"train": 1, "val": 1, "resolution": 16, "seed": 0}


def _describe(numbers: Mapping[str, int]) -> str:
    return f"{numbers['train']} clips for training and {numbers['val']} for validation"


def _to_folder(root: Path, numbers: Mapping[str, int], progress: Progress) -> str:
    for name, least in _LEAST.items():
        if numbers[name] < least:
            raise BadConfig(f"example data: {name} is {numbers[name]}, but must be at least {least}")
    write_example_tree(root, **numbers)
    clips = numbers["train"] + numbers["val"]
    progress(clips, clips)
    return f"{root}: {_describe(numbers)}"


WORLD = ExampleWorld(
    numbers={"train": 32, "val": 8, "resolution": 64, "seed": 0}, describe=_describe, to_folder=_to_folder
)
