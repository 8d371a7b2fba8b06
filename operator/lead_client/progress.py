"""How far a run or a build is, while somebody waits: a bar in a terminal, one line that renews itself in a notebook,
and a line per change elsewhere.
"""

import sys
from collections.abc import Mapping
from typing import Any, Protocol

from lead_client.objects.dataset_cache_status import DatasetCacheStatus
from lead_client.objects.training_run_status import TrainingRunStatus

_BAR = 24  # cells


class ProgressView(Protocol):
    """Shows one status after another."""

    def show(self, status: TrainingRunStatus | DatasetCacheStatus) -> None:
        """Shows a status in place of the one before."""

    def close(self) -> None:
        """Leaves the last one on the screen."""


def progress_view(title: str) -> ProgressView:
    """Returns the view for where this process writes."""
    if _in_notebook():
        return NotebookLine(title)
    return TerminalBar(title) if sys.stdout.isatty() else PlainLines(title)


class PlainLines:
    """A line for each change of phase, stage, epoch or reason."""

    def __init__(self, title: str) -> None:
        self._title, self._shown = title, ""

    def show(self, status: TrainingRunStatus | DatasetCacheStatus) -> None:
        """Prints a line, unless it would repeat the one before but for its numbers."""
        _, position, text = described(status)
        if position != self._shown:
            self._shown = position
            print(f"{self._title}: {text}", flush=True)

    def close(self) -> None:
        """Nothing is left open."""


class NotebookLine:
    """One output of a cell, renewed in place; needs no widgets."""

    def __init__(self, title: str) -> None:
        self._title, self._output = title, None

    def show(self, status: TrainingRunStatus | DatasetCacheStatus) -> None:
        """Renews the output."""
        from IPython.display import display

        share, _, text = described(status)
        done = round(share * _BAR)
        line = f"{self._title}  {'█' * done}{'░' * (_BAR - done)} {share:4.0%}  {text}"
        if self._output is None:
            self._output = display({"text/plain": line}, raw=True, display_id=True)
        else:
            self._output.update({"text/plain": line}, raw=True)

    def close(self) -> None:
        """The last output stays."""


class TerminalBar:
    """A bar by rich."""

    def __init__(self, title: str) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}"), BarColumn(_BAR), TextColumn("{task.percentage:3.0f}%"),
                   TextColumn("{task.fields[text]}", markup=False))  # fmt: skip
        self._bar = Progress(*columns, auto_refresh=False)
        self._task = self._bar.add_task(title, total=1.0, text="")
        self._bar.start()

    def show(self, status: TrainingRunStatus | DatasetCacheStatus) -> None:
        """Draws the bar."""
        share, _, text = described(status)
        self._bar.update(self._task, completed=share, text=text)
        self._bar.refresh()

    def close(self) -> None:
        """Stops drawing; the last state stays."""
        self._bar.stop()


def described(status: TrainingRunStatus | DatasetCacheStatus) -> tuple[float, str, str]:
    """Returns the share that is done (0 to 1), what a new line is worth, and the line's text."""
    found = _run(status) if isinstance(status, TrainingRunStatus) else _cache(status)
    share, position, numbers = found
    phase = status.phase or "not seen by the operator yet"
    waits = [each.message for each in status.conditions or [] if status.reason and each.reason == status.reason]
    because = waits[0] if waits and phase not in ("Running", "Succeeded", "Ready", "Building") else ""
    parts = [phase, *position, *numbers, because or ""]
    return share, "|".join(filter(None, (phase, *position, because))), "  ".join(filter(None, parts))


def _run(status: TrainingRunStatus) -> tuple[float, list[str], list[str]]:
    stages = status.stages or []
    done = 0.0
    for stage in stages:
        progress = stage.progress
        if stage.phase == "Succeeded":
            done += 1.0
        elif progress is not None and progress.steps:
            done += min(1.0, (progress.step or 0) / progress.steps)
    share = 1.0 if status.phase == "Succeeded" else done / len(stages) if stages else 0.0
    display: Mapping[str, Any] = status.display.model_dump() if status.display else {}
    position = [display.get("stage") or "", f"epoch {display['epoch']}" if display.get("epoch") else ""]
    named = {"loss": "loss {}", "rate": "{}", "eta": "{} left"}
    numbers = [text.format(display[key]) for key, text in named.items() if display.get(key)]
    return share, position, numbers


def _cache(status: DatasetCacheStatus) -> tuple[float, list[str], list[str]]:
    share = 1.0 if status.phase == "Ready" else (status.percent or 0) / 100
    display: Mapping[str, Any] = status.display.model_dump() if status.display else {}
    named = {"routes": "{} routes", "shards": "{} shards", "size": "{}", "eta": "{} left"}
    return share, [], [text.format(display[key]) for key, text in named.items() if display.get(key)]


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")
