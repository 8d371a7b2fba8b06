"""`lead example-data`: a small generated dataset, in a folder or in a store; imports no torch."""

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from lead_trainer.engine.storage import open_store
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.lead.example_data.tree import (
    ExampleDataError,
    Progress,
    write_example_tree,
    write_example_tree_to_store,
)

STORE_MARK = "store:"
EVERY_S = 10.0  # between two lines of a log


def write_example_data(options: argparse.Namespace, environ: Mapping[str, str]) -> None:
    """Writes generated routes to a folder or to a store; a repeated call finishes what is missing."""
    numbers = {"routes": options.routes, "frames": options.frames, "seed": options.seed}
    show = progress_lines(f"{options.target}: {options.routes} routes of {options.frames} frames")
    try:
        if options.target.startswith(STORE_MARK):
            prefix = options.target.removeprefix(STORE_MARK)
            done = write_example_tree_to_store(
                open_store(environ), prefix, **numbers, failed_routes=options.failed_routes, progress=show
            )
        else:
            target = Path(options.target)
            done = write_example_tree(target, **numbers, failed_routes=options.failed_routes, progress=show)
    except ExampleDataError as error:
        raise BadConfig(str(error)) from error
    print(f"{done.target}: {done.routes} routes, {done.frames} frames, {done.files} files, {done.size_bytes} bytes")


def progress_lines(what: str, clock: Callable[[], float] = time.monotonic) -> Progress:
    """Returns what prints progress to stderr: in one line at a terminal, else a line at the start and every 10 s."""
    at_terminal, printed_at = sys.stderr.isatty(), clock()
    if not at_terminal:
        print(f"{what}: started", file=sys.stderr, flush=True)

    def show(done: int, of: int) -> None:
        nonlocal printed_at
        if at_terminal:
            print(f"\r{done} of {of} frames", end="\n" if done == of else "", file=sys.stderr, flush=True)
        elif clock() - printed_at >= EVERY_S:
            printed_at = clock()
            print(f"{what}: {done} of {of} frames are made", file=sys.stderr, flush=True)

    return show
