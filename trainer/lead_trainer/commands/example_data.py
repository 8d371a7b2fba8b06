"""`lead example-data`: a small generated dataset of a recipe, in a folder or in a store; imports no torch."""

import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lead_protocol.store.object_store import ObjectStore
from lead_trainer.contract.config_values import near_matches
from lead_trainer.contract.example_world import ExampleWorld, Progress, example_world
from lead_trainer.errors import BadConfig
from lead_trainer.local.config_sources import read_sources
from lead_trainer.local.run_keys import DEFAULT_RECIPE
from lead_trainer.storage import open_store

STORE_MARK = "store:"
EVERY_S = 10.0  # between two lines of a log


def write_example_data(target: str, arguments: Sequence[str], environ: Mapping[str, str]) -> None:
    """Writes a recipe's example world to a folder or to a store; a repeated call finishes what is missing."""
    if not target.removeprefix(STORE_MARK):
        raise BadConfig("example-data: found an empty target, expected a folder, or store:PREFIX")
    given = dict(read_sources(arguments, [], {}).merged())
    recipe = str(given.pop("recipe", DEFAULT_RECIPE))
    world = example_world(recipe)
    numbers = {**world.numbers, **{name: _number(recipe, world, name, value) for name, value in given.items()}}
    show = progress_lines(f"{target}: {world.describe(numbers)}")
    if not target.startswith(STORE_MARK):
        print(world.to_folder(Path(target), numbers, show))
        return
    store, prefix = open_store(environ), target.removeprefix(STORE_MARK)
    if world.to_store is not None:
        print(world.to_store(store, prefix, numbers, show))
        return
    with tempfile.TemporaryDirectory(prefix="lead-example-") as folder:
        world.to_folder(Path(folder), numbers, show)
        print(f"{prefix}: {world.describe(numbers)}, {_upload(Path(folder), store, prefix)} files")


def _number(recipe: str, world: ExampleWorld, name: str, value: object) -> int:
    if name not in world.numbers:
        known = sorted(world.numbers)
        raise BadConfig(f"example-data: recipe {recipe} has no {name!r}, expected one of {', '.join(known)}"
                        f"{near_matches(name, known)}")  # fmt: skip
    if type(value) is not int:
        raise BadConfig(f"example-data: {name}: found {value!r}, expected a whole number")
    return value


def _upload(folder: Path, store: ObjectStore, prefix: str) -> int:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in files:
        store.put(f"{prefix}/{path.relative_to(folder).as_posix()}", path.read_bytes())
    return len(files)


def progress_lines(what: str, clock: Callable[[], float] = time.monotonic) -> Progress:
    """Returns what prints progress to stderr: in one line at a terminal, else a line at the start and every 10 s."""
    at_terminal, printed_at = sys.stderr.isatty(), clock()
    if not at_terminal:
        print(f"{what}: started", file=sys.stderr, flush=True)

    def show(done: int, of: int) -> None:
        nonlocal printed_at
        if at_terminal:
            print(f"\r{done} of {of} made", end="\n" if done == of else "", file=sys.stderr, flush=True)
        elif clock() - printed_at >= EVERY_S:
            printed_at = clock()
            print(f"{what}: {done} of {of} made", file=sys.stderr, flush=True)

    return show
