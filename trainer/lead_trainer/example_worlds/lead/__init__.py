"""A small dataset in LEAD's exact format, made from a seed: for demonstrations and tests without CARLA.

`write_example_tree` fills a folder, `write_example_tree_to_store` an object store.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from lead_protocol.store.object_store import ObjectStore
from lead_trainer.contract.example_world import ExampleWorld, Progress
from lead_trainer.errors import BadConfig
from lead_trainer.example_worlds.lead.tree import (
    ExampleDataError,
    ExampleTreeSummary,
    write_example_tree,
    write_example_tree_to_store,
)

__all__ = ["WORLD", "ExampleDataError", "ExampleTreeSummary", "write_example_tree", "write_example_tree_to_store"]


def _to_folder(root: Path, numbers: Mapping[str, int], progress: Progress) -> str:
    return _written(lambda: write_example_tree(root, **numbers, progress=progress))


def _to_store(store: ObjectStore, prefix: str, numbers: Mapping[str, int], progress: Progress) -> str:
    return _written(lambda: write_example_tree_to_store(store, prefix, **numbers, progress=progress))


def _written(write: Callable[[], ExampleTreeSummary]) -> str:
    try:
        done = write()
    except ExampleDataError as error:
        raise BadConfig(str(error)) from error
    return f"{done.target}: {done.routes} routes, {done.frames} frames, {done.files} files, {done.size_bytes} bytes"


WORLD = ExampleWorld(
    numbers={"routes": 4, "frames": 24, "seed": 0, "failed_routes": 0},
    describe=lambda numbers: f"{numbers['routes']} routes of {numbers['frames']} frames",
    to_folder=_to_folder,
    to_store=_to_store,
)
