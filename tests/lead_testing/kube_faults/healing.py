"""How long the operator knew nothing of what a fault of a watch had kept from it, by kind of fault.

Told by the proxy: what was lost, and every later event and list that brings the same or something newer.
"""

import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

AWAY = "outage"


@dataclass(frozen=True)
class _Lost:
    kind: str
    resource: str
    uid: str  # empty: everything of the resource
    version: int
    since: float  # monotonic


class Healing:
    """Seconds by kind of fault; what was never told again until the trial's end is counted by `open_wounds`."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self._lost: list[_Lost] = []
        self._listed: set[str] = set()

    @property
    def open_wounds(self) -> int:
        """How many events have not been told yet."""
        return len(self._lost)

    def lost(self, kind: str, resource: str, event: dict[str, Any]) -> None:
        """Notes an event that the operator is not told."""
        self._lost.append(_Lost(kind, resource, *_identity(event), time.monotonic()))

    def away(self, until: float) -> None:
        """Notes that nothing is told until then (monotonic): what is known now must be listed anew afterwards."""
        self._lost += [_Lost(AWAY, resource, "", 0, until) for resource in self._listed]

    def told(self, resource: str, event: dict[str, Any]) -> None:
        """Notes an event that the operator is told."""
        if event["type"] in ("BOOKMARK", "ERROR"):
            return
        uid, version = _identity(event)
        self._heal([w for w in self._lost if w.resource == resource and w.uid == uid and w.version <= version])

    def listed(self, resource: str, asked: float) -> None:
        """Notes a list that was asked for at that time (monotonic): it holds whatever was lost before."""
        self._listed.add(resource)
        self._heal([w for w in self._lost if w.resource == resource and w.since <= asked])

    def _heal(self, healed: list[_Lost]) -> None:
        for wound in healed:
            self._lost.remove(wound)
            self.seconds[wound.kind].append(max(0.0, time.monotonic() - wound.since))


def _identity(event: dict[str, Any]) -> tuple[str, int]:
    metadata = event["object"]["metadata"]
    return metadata.get("uid", ""), int(metadata.get("resourceVersion") or 0)
