"""Lines of a trainer's log as people read them: time, level, event and the rest; pure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

MOST_LINES = 1000  # the newest
MOST_CHARS = 2000  # of one line
_OWN = ("timestamp", "level", "event", "logger", "rank")


@dataclass(frozen=True)
class LogLine:
    """One line; what is no JSON is all `event`."""

    event: str
    time: str = ""
    level: str = ""
    rank: str = ""
    rest: str = ""


def read_lines(text: str) -> Sequence[LogLine]:
    """Returns the newest lines of a log in their order."""
    return [_line(line[:MOST_CHARS]) for line in text.splitlines()[-MOST_LINES:]]


def _line(text: str) -> LogLine:
    if not text.startswith("{"):
        return LogLine(text)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return LogLine(text)
    rest = " ".join(f"{key}={_value(value)}" for key, value in found.items() if key not in _OWN)
    return LogLine(
        str(found.get("event", "")),
        str(found.get("timestamp", ""))[:19].replace("T", " "),
        str(found.get("level", "")),
        str(found.get("rank", "")),
        rest,
    )


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.5g}"
    return value if isinstance(value, str) else json.dumps(value)
