"""What the benchmark prints: medians of the rounds, their spread, and the ratios that have a goal."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO

from rich.console import Console
from rich.table import Table

from bench.data.jobs import BOUNDS, FAR_BYTES_PER_S, SYSTEMS, Figures

PACKED, STREAMED, SESSION, PERSISTENT = "packed", "no cache", "lead session", "lead persistent"
BOUND, MEMORY_BOUND = BOUNDS
STREAMING = ("litdata", "mds", "webdataset")


@dataclass(frozen=True)
class Result:
    """One round of one system in one state."""

    system: str
    state: str
    round: int
    samples_per_s: float
    first_batch_s: float  # opening included
    gap_p50_ms: float
    gap_p99_ms: float
    cpu_ms: float  # a sample
    faults: float  # likewise
    load: float  # of the machine when the round began, our own processes included
    samples: int  # of the epoch
    store_bytes: int = -1  # unknown

    @staticmethod
    def of(
        system: str, state: str, number: int, figures: Figures, epoch: int, load: float, store_bytes: int = -1
    ) -> "Result":
        """Takes one epoch out of a process' figures."""
        taken = figures.epochs[epoch]
        return Result(
            system, state, number, taken.samples / taken.seconds, figures.open_s + taken.first_batch_s,
            1000 * taken.gap_p50_s, 1000 * taken.gap_p99_s, taken.cpu_ms, taken.faults, load,
            taken.samples, store_bytes,
        )  # fmt: skip


def printed(results: Sequence[Result], title: str, cache_bytes: int) -> str:
    """Returns the tables as text; `cache_bytes` is what our cache has in the store."""
    console = Console(width=150, file=StringIO(), record=True)
    loads = [result.load for result in results]
    console.print(f"{title}; load of the machine {min(loads):.1f} to {max(loads):.1f}")
    for state in dict.fromkeys(result.state for result in results):
        console.print(_table([result for result in results if result.state == state], state))
    for line in ratios(results):
        console.print(line)
    for state, goal in (("far", 1.01), ("far again", 0.0)):
        if sent := [r.store_bytes for r in results if (r.system, r.state) == (PACKED, state)]:
            console.print(f"{state}: bytes from the store ÷ the cache's = {max(sent) / cache_bytes:.3f} (goal {goal})")
    return console.export_text()


def ratios(results: Sequence[Result]) -> list[str]:
    """Returns the ratios with a goal, each the median over rounds of two figures of one round."""
    lines = []
    for state in ("warm", "second", "cold", "far"):
        for rivals, goal in ((STREAMING, 4.0), ((SESSION,), 12.0), ((PERSISTENT,), 16.0)):
            each = [
                rate / max(others)
                for number in _rounds(results)
                if (rate := _rate(results, PACKED, state, number))
                and (others := [r for name in rivals if (r := _rate(results, name, state, number))])
            ]
            if each:
                name = "the best of " + ", ".join(rivals) if len(rivals) > 1 else rivals[0]
                lines.append(f"{state}: packed ÷ {name} = {statistics.median(each):.1f} (goal {goal:.0f} when warm)")
    for state, other, goal in (
        ("warm", BOUND, 0.9), ("warm", MEMORY_BOUND, 0.9), ("filling", STREAMED, 0.97), ("cold", STREAMED, 0.97),
    ):  # fmt: skip
        bounds = {number: _rate(results, other, state, number) for number in _rounds(results)}
        lines += _share(results, state, bounds, f"{other} = {{:.2f}} (goal {goal})")
    for other, goal in (("litdata", 5), ("mds", 10), ("webdataset", 10)):
        bounds = {number: _rate(results, other, "get only", number) for number in _rounds(results)}
        lines += _share(results, "get only", bounds, f"{other} = {{:.1f}} (goal {goal})")
    for state, link in (("cold", math.inf), ("far", FAR_BYTES_PER_S)):
        bounds = {
            number: min(_rate(results, BOUND, "filling", number), link / _bytes_a_sample(results, state))
            for number in _rounds(results)
        }
        lines += _share(results, state, bounds, "the slower of link and decoding = {:.2f} (goal 0.9)")
    return lines


def _share(results: Sequence[Result], state: str, bounds: Mapping[int, float], words: str) -> list[str]:
    rates = {number: _rate(results, PACKED, state, number) for number in bounds}
    each = [rates[number] / bound for number, bound in bounds.items() if rates[number] and bound]
    return [f"{state}: packed ÷ {words.format(statistics.median(each))}"] if each else []


def _rounds(results: Sequence[Result]) -> set[int]:
    return {result.round for result in results}


def _bytes_a_sample(results: Sequence[Result], state: str) -> float:
    """Returns what one sample took from the store, 0 < bytes, as the packed cache fetched it."""
    found = [r.store_bytes / r.samples for r in results if (r.system, r.state) == (PACKED, state) and r.store_bytes > 0]
    return found[0] if found else 1.0


def _rate(results: Sequence[Result], system: str, state: str, number: int) -> float:
    found = [r.samples_per_s for r in results if (r.system, r.state, r.round) == (system, state, number)]
    return found[0] if found else 0.0


def _table(results: Sequence[Result], state: str) -> Table:
    table = Table("system", "samples/s", "least … most", "first batch s", "batch p50 ms", "p99 ms", "CPU ms a sample",
                  "faults a sample", "MB from store", title=state, title_justify="left")  # fmt: skip
    for system in SYSTEMS:
        mine = [result for result in results if result.system == system]
        if not mine:
            continue
        rates = [result.samples_per_s for result in mine]
        sent = max(result.store_bytes for result in mine)
        table.add_row(
            system, f"{statistics.median(rates):.0f}", f"{min(rates):.0f} … {max(rates):.0f}",
            *(f"{statistics.median(getattr(r, name) for r in mine):.{digits}f}" for name, digits in (
                ("first_batch_s", 2), ("gap_p50_ms", 1), ("gap_p99_ms", 1), ("cpu_ms", 2), ("faults", 0))),
            f"{sent / 1e6:.1f}" if sent >= 0 else "–",
        )  # fmt: skip
    return table
