"""The goals of the data path: R10 its store, R11 the node's cache, R14 hostile bytes; asked of by `make campaign`."""

import multiprocessing
import os
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from campaign import data_faults
from campaign.data_faults import OUTAGE_S, RESTART_S, Bench, bench
from campaign.figures import WANTED, conclude
from lead_testing.data_faults import DAMAGES, READ_FAULTS
from lead_testing.hostile_bytes import parsers, try_inputs
from lead_testing.hostile_child import in_child
from lead_testing.store_proxy import Fault

PORTION = 5_000  # inputs after which a process takes others
Trial = Callable[[Bench, Path, int], bool]


def _read_fault(fault: Fault) -> Trial:
    return lambda here, folder, seed: data_faults.spoiled_answers(here, folder, fault, seed)


def _damage(kind: str) -> Trial:
    return lambda here, folder, seed: data_faults.damage(here, folder / kind, kind, seed)


# How often each trial is played, each time with another seed.
TRIALS: dict[str, dict[str, tuple[int, Trial]]] = {
    "R10": {
        **{fault: (5, _read_fault(fault)) for fault in READ_FAULTS},
        "403": (5, lambda here, folder, seed: data_faults.refused(here, folder)),
        "507": (5, lambda here, folder, seed: data_faults.store_full(here, seed)),
        "1 MB/s": (5, lambda here, folder, seed: data_faults.slow_link(here, folder)),
        "restart": (50, lambda here, folder, seed: data_faults.outage(here, folder, RESTART_S)),
        "outage": (5, lambda here, folder, seed: data_faults.outage(here, folder, OUTAGE_S)),
    },
    "R11": {
        "full": (5, lambda here, folder, seed: data_faults.small_volume(here, folder, "rw")),
        "read-only": (5, lambda here, folder, seed: data_faults.small_volume(here, folder, "ro")),
        "removed": (5, lambda here, folder, seed: data_faults.removed(here, folder)),
        "SIGKILL": (200, data_faults.killed_fill),
        **{kind: (1000 if kind == "flip" else 200, _damage(kind)) for kind in DAMAGES},
    },
}
DATA = (*TRIALS, "R14")


def try_data(goal: str, count: int, seed: int) -> dict[str, Any]:
    """Plays `count` trials of a goal, or inputs of R14 (0: as many as it wants)."""
    return _hostile(count, seed) if goal == "R14" else _trials(goal, count, seed)


def cases(goal: str) -> list[tuple[str, int]]:
    """Returns every trial of a goal by name and number: one of each, then a second of each; long outages last."""
    found = [(name, number) for name, (times, _) in TRIALS[goal].items() for number in range(times)]
    late = [case for case in found if case[0] == "outage"]
    return sorted((case for case in found if case[0] != "outage"), key=lambda case: case[1]) + late


def _trials(goal: str, count: int, seed: int) -> dict[str, Any]:
    asked, started = count or WANTED[goal], time.monotonic()
    violations, played = list[dict[str, Any]](), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="lead-data-faults-") as name, bench(Path(name)) as here:
        for kind, number in cases(goal)[:asked]:
            played[kind] += 1
            if said := _given(TRIALS[goal][kind][1], here, Path(name), 10_000 * seed + number):
                violations.append({"trial": kind, "seed": 10_000 * seed + number, "said": said})
                print(f"{goal}: {kind} {number}: {said}", flush=True)
    return conclude(
        goal, count=count, asked=asked, done=played.total(), seed=seed, seconds=time.monotonic() - started, figures={},
        violations=violations, trials=dict(played),
    )  # fmt: skip


def _given(trial: Trial, here: Bench, folder: Path, seed: int) -> str:
    try:
        return "" if trial(here, folder, seed) else "the epoch differs, or the fault was not found"
    except Exception:  # an error is a wrong answer like another
        return traceback.format_exc(limit=-2)


def _hostile(count: int, seed: int) -> dict[str, Any]:
    asked, started, done = count or WANTED["R14"], time.monotonic(), 0
    violations = list[dict[str, Any]]()
    with multiprocessing.get_context("spawn").Pool(os.cpu_count(), maxtasksperchild=200) as pool:
        for number, wrong in pool.imap_unordered(_portion, _portions(asked, seed)):
            done += number
            violations += [{"said": said} for said in wrong]
    return conclude(
        "R14", count=count, asked=asked, done=done, seed=seed, seconds=time.monotonic() - started, figures={},
        violations=violations,
    )  # fmt: skip


def _portions(asked: int, seed: int) -> Iterator[tuple[str, range]]:
    names, left, first = sorted(parsers()), asked, seed * 10**9
    while left > 0:
        for name in names:
            size = min(left, PORTION)
            if size:
                yield name, range(first, first + size)
            left -= size
        first += PORTION


def _portion(work: tuple[str, range]) -> tuple[int, list[str]]:
    return len(work[1]), (in_child if parsers()[work[0]].apart else try_inputs)(*work)
