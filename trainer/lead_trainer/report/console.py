"""The log: JSON lines for machines (pods, pipes, files), short key=value lines at a terminal.

INFO tells the story of a run in a few dozen lines; rank 0 tells it, other ranks speak from WARNING on. A person sees
the numbers of an epoch that matter, machines all of them; nobody sees more digits than mean something.
"""

import logging
import os
import sys
from typing import Any

import structlog

EPOCH_DONE = "epoch done"
_OF_AN_EPOCH = frozenset({"epoch", "of", "loss", "val/loss", "best", "best_epoch"})
_EMPTY = ("", None)
_THIS_EPOCH = "this epoch"  # in the place of a number that the line has already


def open_log(*, rank: int = 0, json_lines: bool | None = None, **bound: Any) -> None:
    """Sets logging up for this process; `bound` fields stand on every line."""
    machine = not sys.stderr.isatty() if json_lines is None else json_lines
    level = logging.INFO if rank == 0 else logging.WARNING
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            *(_FOR_MACHINES if machine else _for_people()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: structlog.WriteLogger(sys.stderr),  # as it is when a line is written
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(**bound, **({"rank": rank} if rank else {}))


def _for_people() -> list[Any]:
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    renderer = structlog.dev.ConsoleRenderer(colors=not plain, pad_event_to=0, pad_level=False, sort_keys=False)
    return [structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False), _few_metrics, _short_numbers, renderer]


def _few_metrics(logger: Any, method: str, event: Any) -> Any:
    """Leaves out what is empty, and of an epoch's line all numbers but those by which a person judges it.

    Event files and JSON lines hold the others.
    """
    event = {key: value for key, value in event.items() if value not in _EMPTY}
    if event.get("event") != EPOCH_DONE:
        return event
    few = {key: value for key, value in event.items() if key in _OF_AN_EPOCH or not isinstance(value, int | float)}
    best, its_epoch = few.pop("best", None), few.pop("best_epoch", None)
    if its_epoch is None:
        return few
    return {**few, "best": _THIS_EPOCH} if its_epoch == few["epoch"] else {**few, "best": best, "best_epoch": its_epoch}


def _short_numbers(logger: Any, method: str, event: Any) -> Any:
    return {key: float(f"{value:.6g}") if isinstance(value, float) else value for key, value in event.items()}


_FOR_MACHINES = (
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
    _short_numbers,
    structlog.processors.JSONRenderer(),
)
