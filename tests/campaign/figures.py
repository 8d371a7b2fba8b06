"""What each goal asks for, in numbers, and the verdict on what a campaign has done and measured."""

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

VIOLATED = "violated"
Figures = dict[str, list[float]]


@dataclass(frozen=True)
class Limit:
    """A bound on one statistic of a figure."""

    statistic: Literal["p95", "most", "least", "sum"]
    bound: float
    at_least: bool = False

    def broken_by(self, figure: str, values: list[float]) -> str:
        """Says how values break the limit; "" where they keep it."""
        found = summarize(values)[self.statistic]
        if (found >= self.bound) if self.at_least else (found <= self.bound):
            return ""
        side = "at least" if self.at_least else "at most"
        return f"{figure}: {self.statistic} is {found:g}, expected {side} {self.bound:g}"


# How much makes a campaign whole, in what the goal counts; 0: all plans there are.
WANTED = {
    "R1": 0, "R2": 0, "R3": 0, "R4": 300, "deaf": 4, "model": 100_000, "R5": 50, "R6": 1500, "R12": 50, "R13": 20,
    "R15": 1000, "R16": 10, "R18": 10, "R19": 10, "R10": 120, "R11": 2015, "R14": 10_000_000, "live": 200,
}  # fmt: skip
LEAST_KILLS = 500  # of R1, whatever the number of its plans
TOLD_S, STALL_TOLD_S, AFTER_AN_OUTAGE_S = 5, 75, 15
LIMITS: dict[str, dict[str, Limit]] = {
    "R1": {"kills": Limit("sum", LEAST_KILLS, at_least=True)},
    "R4": {
        **{f"{kind}_told_after_s": Limit("most", TOLD_S) for kind in ("gone", "watch-error")},
        "stall_told_after_s": Limit("most", STALL_TOLD_S),
        "outage_told_after_s": Limit("most", AFTER_AN_OUTAGE_S),
    },
    "deaf": {"outage_told_after_s": Limit("most", AFTER_AN_OUTAGE_S)},
    "R5": {"takeover_s": Limit("p95", 20)},
    "R6": {
        "invalid_refused_share": Limit("least", 0.95, at_least=True),
        "settled_s": Limit("most", 60),
        "chains": Limit("sum", 300, at_least=True),
    },
    "R12": {"status_true_s": Limit("most", AFTER_AN_OUTAGE_S)},
    "R15": {
        "first_status_s": Limit("most", 120),
        "rss_mib": Limit("most", 400),
        "api_p99_s": Limit("most", 1),
        "calls_per_run": Limit("most", 40),
        "idle_calls_per_s": Limit("most", 1),
        "idle_writes": Limit("most", 0),
        "kill_costs_s": Limit("most", 60),
    },
    "R18": {"deleted_s": Limit("most", 10)},
    "R19": {"rebuilt_s": Limit("most", 15)},
    "live": {"operator_rss_mib": Limit("most", 400)},
}


def summarize(values: list[float]) -> dict[str, float]:
    """Returns number, least, median, 95th percentile, most and sum of at least one value."""
    p95 = statistics.quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0]
    found = {
        "number": len(values), "least": min(values), "p50": statistics.median(values), "p95": p95,
        "most": max(values), "sum": sum(values),
    }  # fmt: skip
    return {name: round(value, 4) for name, value in found.items()}


def conclude(
    goal: str,
    *,
    count: int,
    asked: int,
    done: int,
    seed: int,
    seconds: float,
    figures: Figures,
    violations: list[Any],
    **more: Any,
) -> dict[str, Any]:
    """Returns what a goal's result file says.

    `asked` and `done` are in what the goal counts; `count` is what the command line asked for, 0 for the whole goal.
    """
    whole = done >= asked and (not count or count >= WANTED[goal] > 0)
    limits = LIMITS.get(goal, {})
    if not whole:  # how many there were tells nothing of a shorter one
        limits = {name: limit for name, limit in limits.items() if limit.statistic != "sum"}
    measured = {name: limit for name, limit in limits.items() if figures.get(name)}
    missed = [text for name, limit in measured.items() if (text := limit.broken_by(name, figures[name]))]
    return {
        "goal": goal, "verdict": _verdict(bool(violations or missed), whole and measured == limits), "asked": asked,
        "done": done, "wanted": WANTED[goal] or "all plans", "seed": seed, "seconds": round(seconds), "missed": missed,
        "unmeasured": [name for name in limits if name not in measured],
        "figures": {name: summarize(values) for name, values in sorted(figures.items()) if values},
        "violations": violations, **more,
    }  # fmt: skip


def _verdict(violated: bool, whole: bool) -> str:
    if violated:
        return VIOLATED
    return "held" if whole else "held as far as it went"


def write_result(folder: Path, result: dict[str, Any]) -> None:
    """Writes `<goal>.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{result['goal']}.json").write_text(json.dumps(result, indent=1))
