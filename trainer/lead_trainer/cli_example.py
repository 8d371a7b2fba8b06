"""`lead example-data`: a small generated dataset, in a folder or in a store; imports no torch."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from lead_trainer.engine.storage import open_store
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.lead.example_data.tree import (
    ExampleDataError,
    write_example_tree,
    write_example_tree_to_store,
)

STORE_MARK = "store:"


def write_example_data(options: argparse.Namespace, environ: Mapping[str, str]) -> None:
    """Writes generated routes to a folder or to a store; a repeated call finishes what is missing."""
    numbers = {"routes": options.routes, "frames": options.frames, "seed": options.seed}
    try:
        if options.target.startswith(STORE_MARK):
            prefix = options.target.removeprefix(STORE_MARK)
            done = write_example_tree_to_store(
                open_store(environ), prefix, **numbers, failed_routes=options.failed_routes, progress=_show
            )
        else:
            target = Path(options.target)
            done = write_example_tree(target, **numbers, failed_routes=options.failed_routes, progress=_show)
    except ExampleDataError as error:
        raise BadConfig(str(error)) from error
    print(f"{done.target}: {done.routes} routes, {done.frames} frames, {done.files} files, {done.size_bytes} bytes")


def _show(done: int, of: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done} of {of} frames", end="\n" if done == of else "", file=sys.stderr)
