"""Event files that were read before, by stage instance: a page that is open reads only what is new of them."""

from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock

from lead_ui.event_files.instance_events import EventFile, Fetch, History, InstanceEvents

MAX_POINTS = 16_000_000  # kept in memory over all instances: 20 bytes each


class EventCache:
    """Keeps what was read last; forgets the instances that nobody has asked for longest."""

    def __init__(self, max_points: int = MAX_POINTS) -> None:
        self._kept: OrderedDict[str, tuple[InstanceEvents, Lock]] = OrderedDict()
        self._max_points, self._lock = max_points, Lock()

    def history(self, name: str, files: Iterable[EventFile], fetch: Fetch) -> History:
        """Returns the history of one instance, with what is new in `files`; raises what `fetch` raises."""
        with self._lock:
            events, own = self._kept.setdefault(name, (InstanceEvents(), Lock()))
            self._kept.move_to_end(name)
        with own:  # one thread reads, the others of the same page wait for it
            history = events.refresh(files, fetch)
        self._forget()
        return history

    def _forget(self) -> None:
        with self._lock:
            points = sum(events.points for events, _ in self._kept.values())
            while points > self._max_points and len(self._kept) > 1:
                _, (events, _) = self._kept.popitem(last=False)
                points -= events.points
