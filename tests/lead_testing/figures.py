"""Figures that a test has measured, for whoever ran it at length: a campaign. In the rings nobody asks for them.

A test never judges them, for a crowded machine is slow; `campaign.figures` holds them against the goals.
"""

import json
import os
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lead_testing.operator_process import wait_for

FILE = "LEAD_TEST_FIGURES"  # names the file that they are added to


def record(name: str, *values: float) -> None:
    """Adds values of one figure, whose name ends in its unit."""
    file = os.environ.get(FILE)
    if file and values:
        with Path(file).open("a") as lines:
            lines.write(json.dumps({"figure": name, "values": [round(value, 4) for value in values]}) + "\n")


def read_figures(file: Path) -> dict[str, list[float]]:
    """Returns all values of each figure; none where no test has recorded any."""
    found = defaultdict[str, list[float]](list)
    for line in file.read_text().splitlines() if file.exists() else []:
        entry = json.loads(line)
        found[entry["figure"]] += entry["values"]
    return dict(found)


def wait_and_record(name: str, what: str, condition: Callable[[], Any], **asked: float) -> Any:
    """Waits as `wait_for` does and adds how long that took, in seconds."""
    started = time.monotonic()
    found = wait_for(what, condition, **asked)
    record(name, time.monotonic() - started)
    return found


def stay(what: str, seconds: float) -> None:
    """Lets a state last that has to last so long."""
    until = time.monotonic() + seconds
    wait_for(what, lambda: time.monotonic() >= until, within_s=seconds + 60)
