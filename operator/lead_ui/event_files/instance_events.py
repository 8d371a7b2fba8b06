"""The event files of one stage instance as one history: a resumed attempt replaces the steps that it repeats."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from lead_ui.event_files.event_log import EventLog, PictureAt, Series

FILE_NAME = re.compile(r"events\.out\.tfevents\.(?P<time>\d{1,12})\.(?P<host>[A-Za-z0-9._-]{1,200})")
_ATTEMPT = re.compile(r"\.attempt-(\d{1,6})$")
PART_BYTES = 8 * 1024 * 1024
MAX_BYTES = 512 * 1024 * 1024  # of all files of one stage instance

Fetch = Callable[[str, int, int], bytes]  # name of a file, offset, length


@dataclass(frozen=True)
class EventFile:
    """One event file as it is listed."""

    name: str
    size: int

    @property
    def attempt(self) -> int:
        """The attempt that wrote it; 0 where its name does not hold one."""
        found = _ATTEMPT.search(self.name)
        return int(found[1]) if found else 0

    @property
    def host(self) -> str:
        """The host that wrote it: in a cluster the pod of rank 0."""
        found = FILE_NAME.match(self.name)
        return re.sub(r"(\.\d+){2}\.attempt-\d+$", "", found["host"]) if found else ""

    @property
    def order(self) -> tuple[int, int, str]:
        """By attempt, then by the time at which it was opened."""
        found = FILE_NAME.match(self.name)
        return self.attempt, int(found["time"]) if found else 0, self.name


@dataclass(frozen=True)
class Span:
    """When one attempt wrote events, in seconds since 1970."""

    attempt: int
    host: str
    first_wall: float
    last_wall: float


@dataclass(frozen=True)
class StoredPicture:
    """A picture and the file that holds it."""

    file: str
    at: PictureAt


@dataclass(frozen=True)
class History:
    """Scalars by tag and pictures of a stage instance, over all attempts."""

    series: Mapping[str, Series] = field(default_factory=dict)
    pictures: tuple[StoredPicture, ...] = ()
    spans: tuple[Span, ...] = ()
    faults: tuple[str, ...] = ()  # why a file is not read to its end


class InstanceEvents:
    """Reads what is new of a stage instance's event files; call `refresh` as often as needed."""

    def __init__(self) -> None:
        self._logs: dict[str, EventLog] = {}
        self._history = History()
        self.points = 0

    def refresh(self, files: Iterable[EventFile], fetch: Fetch) -> History:
        """Fetches what has grown and returns the whole history; raises what `fetch` raises."""
        listed = sorted((each for each in files if FILE_NAME.match(each.name)), key=lambda each: each.order)
        grown, total = False, 0
        for each in listed:
            log = self._logs.get(each.name)
            if log is None or each.size < log.size:  # replaced by a shorter one: not the file that was read
                log = self._logs[each.name] = EventLog()
                grown = True
            total += each.size
            while log.size < each.size and total <= MAX_BYTES:
                log.feed(fetch(each.name, log.size, min(PART_BYTES, each.size - log.size)))
                grown = True
        gone = self._logs.keys() - {each.name for each in listed}
        for name in gone:
            del self._logs[name]
        if grown or gone:
            self._history = merged(listed, self._logs)
            self.points = sum(len(series.steps) for series in self._history.series.values())
        return self._history


def merged(files: Iterable[EventFile], logs: Mapping[str, EventLog]) -> History:
    """Returns the history of files in their order, each as far as it was read; pure."""
    series, pictures = dict[str, Series](), list[StoredPicture]()
    spans, faults = dict[int, Span](), list[str]()
    for each in files:
        log = logs[each.name]
        if log.replaces_from is not None:
            for tag in series:
                series[tag] = _before(series[tag], log.replaces_from)
            pictures = [picture for picture in pictures if picture.at.step < log.replaces_from]
        for tag, added in log.series.items():
            series[tag] = _joined(series[tag], added) if tag in series else added
        pictures += [StoredPicture(each.name, at) for at in log.pictures]
        if log.first_wall is not None and log.last_wall is not None:
            before = spans.get(each.attempt)
            first = min(before.first_wall, log.first_wall) if before else log.first_wall
            spans[each.attempt] = Span(each.attempt, each.host, first, log.last_wall)
        if log.fault:
            faults.append(f"{each.name}: {log.fault}")
    pictures.sort(key=lambda picture: (picture.at.tag, picture.at.step))
    return History(series, tuple(pictures), tuple(spans[number] for number in sorted(spans)), tuple(faults))


def _before(series: Series, step: int) -> Series:
    """Returns the points before a step; steps of one tag grow."""
    if not series.steps or series.steps[-1] < step:
        return series
    end = bisect_left(series.steps, step)
    return Series(series.steps[:end], series.walls[:end], series.values[:end])


def _joined(first: Series, second: Series) -> Series:
    return Series(first.steps + second.steps, first.walls + second.walls, first.values + second.values)
