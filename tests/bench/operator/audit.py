"""Reads the API server's audit log, the one truth about who asked what when: no operator tells it about itself."""

import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

# One line a call, after its answer; calls of the API server to itself and reads of the bench's own eyes are left out.
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {"level": "None", "users": ["system:apiserver"]},
        {"level": "None", "userGroups": ["system:masters"], "verbs": ["get", "list", "watch"]},
        {"level": "Metadata"},
    ],
}
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
POLL_S = 0.25


@dataclass(frozen=True)
class Call:
    """One answered call; times are seconds since the epoch by the API server's clock."""

    user: str
    verb: str
    resource: str  # with its subresource: pods/status
    namespace: str
    name: str
    code: int
    received: float
    answered: float

    @property
    def run(self) -> str:
        """The run that the object belongs to: names of runs hold no dash, and names of their children begin so."""
        return re.split(r"[-.]", self.name, maxsplit=1)[0]

    @property
    def wrote(self) -> bool:
        """Whether it changed anything; a lease is a heartbeat and counts for itself."""
        return self.verb in WRITES and self.resource != "leases" and self.code < 400

    def made(self, resource: str) -> bool:
        """Whether it created an object of this resource."""
        return self.verb == "create" and self.resource == resource and self.code < 400


@dataclass
class AuditLog:
    """The calls in the log, read on as it grows."""

    file: Path
    calls: list[Call] = field(default_factory=list)
    _read: int = 0

    def mark(self) -> int:
        """Returns a position: calls answered from now on come after it."""
        self._take()
        return len(self.calls)

    def since(self, mark: int) -> list[Call]:
        """Returns every call since a position."""
        self._take()
        return self.calls[mark:]

    def wait(self, mark: int, what: str, enough: Callable[[list[Call]], bool], within_s: float) -> list[Call]:
        """Waits until the calls since `mark` are enough, and returns them; raises TimeoutError with `what`."""
        deadline = time.monotonic() + within_s
        while not enough(calls := self.since(mark)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {within_s:.0f} s in vain for: {what}")
            time.sleep(POLL_S)
        return calls

    def wait_for_rest(self, user: str, quiet_s: float, within_s: float) -> None:
        """Waits until a user has written nothing for so long."""
        mark, quiet_since, deadline = self.mark(), time.monotonic(), time.monotonic() + within_s
        while time.monotonic() - quiet_since < quiet_s:
            if any(call.wrote and call.user == user for call in self.since(mark)):
                mark, quiet_since = self.mark(), time.monotonic()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{user} still writes after {within_s:.0f} s")
            time.sleep(POLL_S)

    def _take(self) -> None:
        if not self.file.exists():
            return
        with self.file.open("rb") as log:
            log.seek(self._read)
            text = log.read()
        whole = text[: text.rfind(b"\n") + 1]  # the last line may be half written
        self._read += len(whole)
        self.calls += [parse_call(json.loads(line)) for line in whole.splitlines()]


def parse_call(event: dict[str, Any]) -> Call:
    """Returns one audit event as a call; what names no object has empty names."""
    target = event.get("objectRef", {})
    resource, part = target.get("resource", ""), target.get("subresource", "")
    return Call(
        user=event["user"]["username"],
        verb=event["verb"],
        resource=f"{resource}/{part}" if part else resource,
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        code=event.get("responseStatus", {}).get("code", 0),
        received=_seconds(event["requestReceivedTimestamp"]),
        answered=_seconds(event["stageTimestamp"]),
    )


def times_to_last_pod(calls: Iterable[Call], begins: Callable[[Call], bool], pods: int) -> dict[str, float]:
    """Returns for each run the seconds from its first call that `begins` to the answer of its `pods`-th pod create.

    Runs that have fewer pods since then are left out.
    """
    begun: dict[str, float] = {}
    made: dict[str, list[float]] = defaultdict(list)
    for call in sorted(calls, key=lambda call: call.received):
        if begins(call):
            begun.setdefault(call.run, call.received)
        elif call.made("pods") and call.run in begun:
            made[call.run].append(call.answered)
    return {run: sorted(made[run])[pods - 1] - at for run, at in begun.items() if len(made[run]) >= pods}


def span_to_last_pod(calls: Iterable[Call], begins: Callable[[Call], bool]) -> float:
    """Returns the seconds from the first call of all that `begins` to the answer of the last pod create of all."""
    held = list(calls)
    first = min(call.received for call in held if begins(call))
    return max(call.answered for call in held if call.made("pods")) - first


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()
