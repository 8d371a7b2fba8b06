"""What a simulator left in a folder: result files of the Leaderboard, and logs of the ego vehicle's motion.

Read by `lead closed-loop` and by the pod that publishes results. The folder is of another program: only regular files
in it are opened, no link is followed, and counts and sizes are bounded.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lead_protocol.leaderboard_results import (
    MAX_RESULT_BYTES,
    ClosedLoopSummary,
    NamedResults,
    NoResults,
    parse_results,
    summarise,
)
from lead_trainer.closed_loop.comfort import Comfort, comfort_of
from lead_trainer.errors import BadData

MAX_FILES = 20_000
SHOWN_FILES = 3
MARK = b'"_checkpoint"'  # every result file of the Leaderboard has it; other JSON files beside it are artefacts
MOTION_LOG = "ego_motion.csv"  # optional, one a route


@dataclass(frozen=True)
class Evaluation:
    """The numbers of a folder of results; `comfort` is None where no motion was logged."""

    summary: ClosedLoopSummary
    comfort: Comfort | None


def read_results(folder: Path) -> Evaluation:
    """Returns the numbers of every result file below a folder; raises BadData that names the file."""
    files = list(regular_files(folder))
    named = [each for path in files if path.suffix == ".json" and (each := _results_in(folder, path)) is not None]
    if not named:
        others = ", ".join(path.relative_to(folder).as_posix() for path in files[:SHOWN_FILES]) or "no file"
        more = f" and {len(files) - SHOWN_FILES} more" if len(files) > SHOWN_FILES else ""
        raise BadData(
            f"{folder} holds no result file of the Leaderboard; expected at least one .json with a member _checkpoint, "
            f"found {others}{more}"
        )
    try:
        summary = summarise(named)
    except NoResults as error:
        raise BadData(f"{folder}: {error}; leave one of the files out") from None
    if not summary.recorded:
        raise BadData(
            f"{folder}: no result file holds the record of a route, so nothing was driven; see the simulator's log"
        )
    motions = [comfort_of(path) for path in files if path.name == MOTION_LOG]
    return Evaluation(summary, Comfort.worst(motions) if motions else None)


def regular_files(folder: Path) -> Iterator[Path]:
    """Yields every regular file below a folder, sorted; raises BadData where there are too many, or no folder."""
    if not folder.is_dir():
        raise BadData(f"there is no folder {folder} with results")
    count = 0
    for parent, folders, names in os.walk(folder, followlinks=False):
        folders.sort()
        for name in sorted(names):
            path = Path(parent) / name
            if path.is_symlink() or not path.is_file():
                continue
            count += 1
            if count > MAX_FILES:
                raise BadData(f"{folder} holds more than {MAX_FILES} files; keep one evaluation's results in a folder")
            yield path


def _results_in(folder: Path, path: Path) -> NamedResults | None:
    name = path.relative_to(folder).as_posix()
    with path.open("rb") as file:
        data = file.read(MAX_RESULT_BYTES + 1)
    if MARK not in data:
        return None
    if len(data) > MAX_RESULT_BYTES:
        size = path.stat().st_size
        raise BadData(
            f"{name} has {size} bytes, a result file has at most {MAX_RESULT_BYTES}; drive fewer routes a file"
        )
    try:
        return NamedResults(_route_name(path, folder), parse_results(data))
    except NoResults as error:
        raise BadData(f"{name} is no result file of the Leaderboard: {error}") from None


def _route_name(path: Path, folder: Path) -> str:
    """Returns the folder's name where each route has one of its own, as Bench2Drive's tools write them."""
    return path.parent.name if path.parent != folder else path.stem
