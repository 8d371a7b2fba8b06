"""The log: JSON lines for machines (pods, pipes, files), short key=value lines at a terminal.

structlog and the standard library's `logging` (urllib3, minio, torch, asyncio, `warnings`, recipes of others) share
one handler, so every line of a process has the same form and the same fields. INFO describes a run in a few
dozen lines; other ranks than the first log from WARNING on. A person sees the numbers of an epoch that matter,
machines all of them; nobody sees more digits than mean something.
"""

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, Processor

from lead_trainer.terminal_text import printable

EPOCH_DONE = "epoch done"
_OF_AN_EPOCH = frozenset({"epoch", "of", "loss", "val/loss", "best", "best_epoch"})
_EMPTY = ("", None)
_THIS_EPOCH = "this epoch"  # in the place of a number that the line has already


def open_log(*, rank: int = 0, json_lines: bool | None = None, **bound: Any) -> None:
    """Sets up the log of this process and of those it forks; a later call replaces an earlier one.

    `rank` and `bound` are fields of every machine's line, of any thread; a person's line has the rank alone, from 1 on.
    `json_lines` None asks whether standard error is a terminal.
    """
    machine = not sys.stderr.isatty() if json_lines is None else json_lines
    level = logging.INFO if rank == 0 else logging.WARNING
    fields = {"rank": rank, **bound} if machine else ({"rank": rank} if rank else {})
    first = [structlog.stdlib.add_log_level, *([structlog.stdlib.add_logger_name] if machine else [])]
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, *first, ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = _StandardError()
    handler.setFormatter(
        ProcessorFormatter(
            foreign_pre_chain=first,
            processors=[
                ProcessorFormatter.remove_processors_meta,
                _with(fields),
                *(_FOR_MACHINES if machine else _for_people()),
            ],
        )
    )
    _route_standard_logging(handler, level)


def report_error(sentence: str, **fields: Any) -> None:
    """Logs why a process ends, also where no log is open yet."""
    if not structlog.is_configured():
        open_log()
    structlog.get_logger(__name__).error(sentence, **fields)


class _StandardError(logging.StreamHandler[TextIO]):
    """Writes to standard error as it is when a line is written; its lock is recreated in a forked process."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


def _route_standard_logging(handler: logging.Handler, level: int) -> None:
    """Makes `handler` the only one that writes to a console, also for libraries with handlers of their own."""
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for logger in list(root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger) and any(_writes_to_console(own) for own in logger.handlers):
            logger.handlers = [own for own in logger.handlers if not _writes_to_console(own)]
            logger.propagate = True
    logging.captureWarnings(True)


def _writes_to_console(handler: logging.Handler) -> bool:
    return getattr(handler, "stream", None) in (sys.stderr, sys.stdout, sys.__stderr__, sys.__stdout__)


def _with(fields: Mapping[str, Any]) -> Processor:
    """Returns a processor that adds the fields of the process; context variables would be missing in its threads."""

    def added(logger: Any, method: str, event: EventDict) -> EventDict:
        return {**fields, **event}

    return added


def _for_people() -> Sequence[Processor]:
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    renderer = structlog.dev.ConsoleRenderer(
        colors=not plain, pad_event_to=0, pad_level=False, sort_keys=False,
        exception_formatter=structlog.dev.plain_traceback,
    )  # fmt: skip
    return [
        structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False), _few_metrics, _short_numbers, _printable, renderer
    ]  # fmt: skip


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


def _printable(logger: Any, method: str, event: Any) -> Any:
    """Escapes what a terminal obeys, such as the name of somebody's file; structlog does so with the other fields."""
    return {**event, "event": printable(str(event.get("event", "")))}


def _short_numbers(logger: Any, method: str, event: Any) -> Any:
    return {key: float(f"{value:.6g}") if isinstance(value, float) else value for key, value in event.items()}


_FOR_MACHINES: Sequence[Processor] = (
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
    _short_numbers,
    structlog.processors.JSONRenderer(),
)
