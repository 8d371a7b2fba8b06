"""Draws the benchmark's results; run in the bench's own environment, which has matplotlib.

python -m bench.data.picture RESULTS.json PICTURE.png
"""

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import matplotlib  # type: ignore[import-not-found]

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from bench.data.jobs import LEADS, OURS, SYSTEMS


def colour(system: str) -> str:
    """Returns one colour a family."""
    return "#1b7f5c" if system in OURS else "#b5482a" if system in LEADS else "#5b6b8c"


def draw(results: list[dict[str, Any]], path: Path) -> None:
    """Writes a bar a system and state: median of the rounds, with the spread as a line."""
    states = list(dict.fromkeys(result["state"] for result in results))
    figure, axes = plt.subplots(1, len(states), figsize=(3.6 * len(states), 4.2), squeeze=False, sharey=True)
    for axis, state in zip(axes[0], states, strict=True):
        for place, system in enumerate(reversed(SYSTEMS)):
            rates = [r["samples_per_s"] for r in results if (r["system"], r["state"]) == (system, state)]
            if not rates:
                continue
            middle = statistics.median(rates)
            axis.barh(place, middle, color=colour(system))
            axis.plot([min(rates), max(rates)], [place, place], color="black", linewidth=1)
            axis.text(max(rates), place, f" {middle:.0f}", va="center", fontsize=8)
        axis.set_title(state)
        axis.set_xlabel("samples a second")
        axis.set_yticks(range(len(SYSTEMS)), list(reversed(SYSTEMS)))
        axis.margins(x=0.18)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
