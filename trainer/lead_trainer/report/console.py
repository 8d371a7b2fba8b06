"""The log: JSON lines for machines, coloured key=value lines where a person looks on.

INFO tells the story of a run in a few dozen lines; rank 0 tells it, other ranks speak from WARNING on.
"""

import logging
import sys
from typing import Any

import structlog


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
            structlog.processors.format_exc_info if machine else _unchanged,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: structlog.WriteLogger(sys.stderr),  # as it is when a line is written
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(**bound, **({"rank": rank} if rank else {}))


def _unchanged(logger: Any, method: str, event: Any) -> Any:
    return event
