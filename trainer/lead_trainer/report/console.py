"""The log: JSON lines for machines, coloured key=value lines where a person looks on.

INFO tells the story of a run in a few dozen lines; rank 0 tells it, other ranks speak from WARNING on. A person sees
the numbers of an epoch that matter, machines all of them; nobody sees more digits than mean something.
"""

import logging
import sys
from typing import Any

import structlog

EPOCH_DONE = "epoch done"
_OF_AN_EPOCH = frozenset({"epoch", "of", "loss", "val/loss", "best", "best_epoch"})


def open_log(*, rank: int = 0, json_lines: bool | None = None, **bound: Any) -> None:
    """Sets logging up for this process; `bound` fields stand on every line."""
    machine = not sys.stderr.isatty() if json_lines is None else json_lines
    level = logging.INFO if rank == 0 else logging.WARNING
    renderer: Any = structlog.processors.JSONRenderer() if machine else structlog.dev.ConsoleRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info if machine else _few_metrics,
            _short_numbers,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: structlog.WriteLogger(sys.stderr),  # as it is when a line is written
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(**bound, **({"rank": rank} if rank else {}))


def _few_metrics(logger: Any, method: str, event: Any) -> Any:
    """Leaves an epoch's line the numbers by which a person judges it; event files and JSON lines hold the others."""
    if event.get("event") != EPOCH_DONE:
        return event
    return {key: value for key, value in event.items() if key in _OF_AN_EPOCH or not isinstance(value, int | float)}


def _short_numbers(logger: Any, method: str, event: Any) -> Any:
    return {key: float(f"{value:.6g}") if isinstance(value, float) else value for key, value in event.items()}
