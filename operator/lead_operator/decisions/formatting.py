"""Numbers and times as people read them in `kubectl get`; times as Kubernetes writes them."""

from datetime import UTC, datetime, timedelta


def format_time(moment: datetime) -> str:
    """Returns RFC 3339 in UTC with whole seconds, as metav1.Time."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: object) -> datetime | None:
    """Returns the time in a status field, in UTC, or None where it holds no time that exists in UTC."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def plausible_time(text: object) -> str | None:
    """Returns a time from others in the format of a status; None for an impossible one."""
    moment = parse_time(text)
    return None if moment is None or moment.year < 2000 else format_time(moment)


def seconds_since(text: object, now: datetime) -> float | None:
    """Returns the age of a status field's time, or None where it holds none."""
    moment = parse_time(text)
    return None if moment is None else (now - moment) / timedelta(seconds=1)


def format_number(value: float) -> str:
    """Returns four significant digits: 0.8312, 1.204e-05."""
    return f"{value:.4g}"


def format_rate(per_second: float) -> str:
    """Returns samples per second: 412/s, 41.2/s, 4.12/s."""
    decimals = 0 if per_second >= 100 else 1 if per_second >= 10 else 2
    return f"{per_second:.{decimals}f}/s"


def format_duration(seconds: float) -> str:
    """Returns two units at most: 45s, 12m30s, 1h12m, 2d3h."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60}m"
    return f"{whole // 86400}d{whole % 86400 // 3600}h"


def format_size(size_bytes: int) -> str:
    """Returns a binary size: 512, 3.4Mi, 1.2Gi."""
    value = float(size_bytes)
    for unit in ("", "Ki", "Mi", "Gi", "Ti"):
        if value < 1024:
            return f"{value:.0f}" if not unit else f"{value:.1f}{unit}"
        value /= 1024
    return f"{value:.1f}Pi"


def on_one_line(text: str) -> str:
    """Returns `text` without what steers a terminal: line breaks become spaces, other such characters escapes.

    Keys, names and what pods report stand in messages that others read.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def shorten(text: str, limit: int) -> str:
    """Returns `text` on one line, or its end where it is longer: the last lines of a log are the most useful."""
    text = on_one_line(text.strip())
    return text if len(text) <= limit else "…" + text[-(limit - 1) :]
