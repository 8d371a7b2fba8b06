"""Where the pages get their model from: a cluster with its bucket, or folders of local runs. Both read, neither writes.

Methods block, and are called in threads. What does not exist is None. Who may see what is decided before they are
called, by `access`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lead_ui.curves import Placement
from lead_ui.event_files.instance_events import History, StoredPicture
from lead_ui.model import Cache, CacheRow, Holding, Instance, Run, RunKey, RunRow


@dataclass(frozen=True)
class InstanceCurves:
    """What the event files of one stage instance hold, and where it lies on the axes."""

    instance: Instance
    placement: Placement
    history: History
    picture: Callable[[StoredPicture], bytes] = field(repr=False, compare=False, default=lambda picture: b"")


class SourceUnavailable(Exception):
    """The API server or the object store does not answer, or refuses; the message names it and the reason."""


Visible = Callable[[str], bool]  # whether a namespace's resources may be listed


class Source(Protocol):
    """One read model of runs and caches."""

    @property
    def title(self) -> str:
        """What is shown, for the head of every page."""

    @property
    def is_cluster(self) -> bool:
        """Whether there are namespaces, pods and events."""

    @property
    def is_ready(self) -> bool:
        """Whether it has read what there is once."""

    def namespaces(self) -> Sequence[str]:
        """Returns the namespaces that hold runs or caches."""

    def runs(self, visible: Visible) -> list[RunRow]:
        """Returns the runs of the visible namespaces."""

    def row(self, key: RunKey) -> RunRow | None:
        """Returns one run's line."""

    def run(self, key: RunKey) -> Run | None:
        """Returns one run; raises SourceUnavailable only where nothing of it can be shown."""

    def curves(self, key: RunKey) -> dict[str, InstanceCurves] | None:
        """Returns the event files' content of one run by stage instance; raises SourceUnavailable."""

    def logs(self, key: RunKey, pod: str) -> str | None:
        """Returns the end of the log of one of the run's pods; raises SourceUnavailable."""

    def caches(self, visible: Visible) -> list[CacheRow]:
        """Returns the caches of the visible namespaces."""

    def cache(self, key: RunKey) -> Cache | None:
        """Returns one cache."""

    def holdings(self, visible: Visible) -> list[Holding]:
        """Returns what lies in the bucket by run and cache; raises SourceUnavailable."""
