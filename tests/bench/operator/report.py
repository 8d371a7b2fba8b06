"""Turns the numbers of all repeats into one table: median and range, and whether the goal is met. Pure."""

import platform
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Results = dict[str, dict[str, list[dict[str, Any]]]]  # system -> trial -> one entry a repeat


@dataclass(frozen=True)
class Line:
    """One measure: how it is read from a trial's numbers, and what ours should reach."""

    what: str
    unit: str
    trial: str
    read: Callable[[dict[str, Any]], float]
    goal: float | None = None  # at most


def percentile(values: Iterable[float], share: float) -> float:
    """Returns the smallest value that at least `share` of all do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1)]


def lines(runs: int, wide: int, many: int) -> list[Line]:
    """Returns every measure with its goal."""
    return [
        Line("one run: last pod made, p50", "ms", "bursts", lambda t: 1e3 * percentile(t["one_s"], 0.5), 40),
        Line("one run: last pod made, p99", "ms", "bursts", lambda t: 1e3 * percentile(t["one_s"], 0.99)),
        Line(f"one run of {wide} pods: last pod made", "s", "bursts", lambda t: t["wide_s"], 0.6),
        Line(f"{runs} runs at once: last pod made", "s", "bursts", lambda t: t["burst"]["span_s"], 5),
        Line(f"{runs} runs at once: each, p50", "s", "bursts", lambda t: percentile(t["burst"]["each_s"], 0.5)),
        Line(f"{runs} runs at once: each, p99", "s", "bursts", lambda t: percentile(t["burst"]["each_s"], 0.99)),
        Line(f"{runs} runs at once: CPU a run", "ms", "bursts", lambda t: 1e3 * t["burst"]["cpu_s"] / runs),
        Line("one failed pod: replaced, p50", "s", "bursts", lambda t: percentile(t["replaced_alone_s"], 0.5)),
        Line("one failed pod: replaced, p99", "s", "bursts", lambda t: percentile(t["replaced_alone_s"], 0.99), 2),
        Line(f"failed pod in all {runs}: replaced, p50", "s", "bursts", lambda t: percentile(t["replaced_s"], 0.5)),
        Line(f"failed pod in all {runs}: replaced, p99", "s", "bursts", lambda t: percentile(t["replaced_s"], 0.99)),
        Line("RSS without runs", "MiB", "bursts", lambda t: t["rss_empty_mib"]),
        Line(f"RSS with {runs} runs", "MiB", "bursts", lambda t: t["rss_full_mib"]),
        Line(f"{many} runs at once: last pod made", "s", "many", lambda t: t["burst"]["span_s"], 60),
        Line(f"{many} runs at once: each, p99", "s", "many", lambda t: percentile(t["burst"]["each_s"], 0.99)),
        Line(f"RSS with {many} runs", "MiB", "many", lambda t: t["rss_full_mib"], 150),
        Line(f"idle with {many} runs: writes a minute", "", "many", lambda t: _a_minute(t, "writes"), 0),
        Line(f"idle with {many} runs: LISTs a minute", "", "many", lambda t: _a_minute(t, "lists"), 0),
        Line(f"idle with {many} runs: lease renewals a minute", "", "many", lambda t: _a_minute(t, "lease_writes")),
        Line(f"idle with {many} runs: CPU of one core", "%", "many", lambda t: 100 * t["idle"]["cpu_share"]),
        Line(f"restart with {many} runs: all reconciled", "s", "many", lambda t: t["restart"]["seconds"], 5),
        Line(f"restart with {many} runs: progress of all read", "s", "many", lambda t: t["restart"]["read_s"]),
        Line(f"restart with {many} runs: writes", "", "many", lambda t: t["restart"]["writes"], 0),
        Line("writes of one run's life", "", "life", lambda t: t["writes_a_run"], 13),
    ]  # fmt: skip


def table(results: Results, measures: list[Line]) -> str:
    """Returns a Markdown table: a row a measure, a column a system; `median (lowest–highest, n)`."""
    systems = list(results)
    rows = [["measure", "goal", *systems], ["---"] * (2 + len(systems))]
    for line in measures:
        cells = [_cell([line.read(numbers) for numbers in results[name].get(line.trial, [])]) for name in systems]
        unit = f", {line.unit}" if line.unit else ""
        rows.append([f"{line.what}{unit}", "" if line.goal is None else f"≤ {line.goal:g}", *cells])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def missed_goals(results: Results, measures: list[Line], system: str) -> list[str]:
    """Returns a sentence for each goal that the median of `system` misses."""
    missed = []
    for line in measures:
        values = [line.read(numbers) for numbers in results[system].get(line.trial, [])]
        if line.goal is not None and values and statistics.median(values) > line.goal:
            found = f"{_figure(statistics.median(values))} {line.unit}".strip()
            missed.append(f"{line.what}: {found}, goal ≤ {line.goal:g}")
    return missed


def machine() -> dict[str, Any]:
    """Returns what the numbers depend on."""
    cpu = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    memory = int(Path("/proc/meminfo").read_text().split()[1]) / 2**20
    cores = sum(line.startswith("processor") for line in Path("/proc/cpuinfo").read_text().splitlines())
    return {"cpu": cpu.partition(":")[2].strip(), "cores": cores, "memory_gib": round(memory, 1),
            "kernel": platform.release(), "python": platform.python_version()}  # fmt: skip


def _a_minute(numbers: dict[str, Any], key: str) -> float:
    return 60 * float(numbers["idle"][key]) / float(numbers["idle"]["seconds"])


def _cell(values: list[float]) -> str:
    if not values:
        return "–"
    if len(values) == 1:
        return f"{_figure(values[0])} (n=1)"
    low, high = _figure(min(values)), _figure(max(values))
    return f"{_figure(statistics.median(values))} ({low}–{high}, n={len(values)})"


def _figure(value: float) -> str:
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
