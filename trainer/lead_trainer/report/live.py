"""How far an epoch is, while it lasts: a bar at a terminal, and a line every half minute in a log.

Called by `engine.hooks` on rank 0. It draws from the thread that trains and starts none, because workers may be forked.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

LOG_EVERY_S, DRAW_EVERY_S = 30.0, 0.5

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class EpochSoFar:
    """A position in an epoch; epoch and step count from 1."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float | None = None  # mean of the epoch so far
    samples_per_s: float | None = None
    eta_s: float | None = None  # to the end of the stage

    def numbers(self) -> dict[str, float]:
        """Returns what is known beside the position."""
        found = {"loss": self.loss, "samples_per_s": self.samples_per_s, "eta_s": self.eta_s}
        return {name: float(f"{value:.4g}") for name, value in found.items() if value is not None}

    def text(self) -> str:
        """Returns the same for people: `loss 0.25, 1.6 samples/s, 20 min left`."""
        texts = [
            "" if self.loss is None else f"loss {self.loss:.4g}",
            "" if self.samples_per_s is None else f"{self.samples_per_s:.2g} samples/s"
            if self.samples_per_s < 10 else f"{self.samples_per_s:.0f} samples/s",
            "" if self.eta_s is None else f"{duration(self.eta_s)} left",
        ]  # fmt: skip
        return ", ".join(filter(None, texts))


def duration(seconds: float) -> str:
    """Returns a time for people, in two units at most: `45 s`, `20 min`, `5 h 20 min`."""
    minutes, hours = round(seconds / 60), round(seconds / 3600)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


@dataclass
class Live:
    """Shows an epoch's course; `terminal` None asks standard error."""

    terminal: bool | None = None
    pictures: Path | None = None  # where pictures are written, named once there is one
    checkpoint: str = ""  # the newest, for people
    clock: Callable[[], float] = time.monotonic
    console: Console = field(default_factory=lambda: Console(stderr=True))
    _bar: Progress | None = None
    _task: TaskID | None = None
    _shown_at: float = field(init=False)

    def __post_init__(self) -> None:
        """Begins the first wait."""
        self.terminal = sys.stderr.isatty() if self.terminal is None else self.terminal
        self._shown_at = self.clock()

    def due(self) -> bool:
        """Returns whether it is time to show something; asked after every step, so that numbers are made only then."""
        return self.clock() - self._shown_at >= (DRAW_EVERY_S if self.terminal else LOG_EVERY_S)

    def show(self, now: EpochSoFar) -> None:
        """Draws the bar, or writes a line."""
        self._shown_at = self.clock()
        if not self.terminal:
            log.info("in epoch", epoch=now.epoch, of=now.epochs, step=now.step, steps=now.steps, **now.numbers())
            return
        if self._bar is None or self._task is None:
            columns = (TextColumn("epoch {task.fields[epoch]}/{task.fields[epochs]}"), BarColumn(),
                       MofNCompleteColumn(), TextColumn("{task.fields[numbers]}"))  # fmt: skip
            self._bar = Progress(*columns, console=self.console, transient=True, auto_refresh=False)
            self._task = self._bar.add_task("", total=now.steps, epoch=now.epoch, epochs=now.epochs, numbers="")
            self._bar.start()
        numbers = ", ".join(filter(None, (now.text(), self.checkpoint, self._pictures())))
        self._bar.update(
            self._task, completed=now.step, total=now.steps, epoch=now.epoch, epochs=now.epochs, numbers=numbers
        )
        self._bar.refresh()

    def committed(self, epoch: int, step: int) -> None:
        """Names the newest checkpoint beside the bar from now on."""
        self.checkpoint = f"checkpoint {time.strftime('%H:%M:%S')} (epoch {epoch}, step {step})"

    def _pictures(self) -> str:
        return f"pictures in {self.pictures}" if self.pictures is not None and self.pictures.is_dir() else ""

    def end(self) -> None:
        """Takes the bar away, at an epoch's end or where training ends."""
        if self._bar is not None:
            self._bar.stop()
        self._bar, self._task, self._shown_at = None, None, self.clock()
