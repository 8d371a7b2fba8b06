"""Writes Kubernetes events about custom resources: of one reason one a minute, and each sentence once.

Called by `controllers.apply` after everything else has succeeded; a task of its own sends them one after another, so
that no pass waits for events while others wait for pods. The newest withheld message is sent when its minute
is over, unless it equals the last one sent; a repeated one is counted now and then, like in Kubernetes. An event
is a courtesy to people: one that cannot be written is logged and forgotten, and no decision ever reads one.
"""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import structlog

from lead_operator import names
from lead_operator.decisions.formatting import on_one_line
from lead_operator.decisions.plan import MAX_EVENT_MESSAGE, EventNote
from lead_operator.fair_turns import RoundRobin
from lead_operator.kube.api_errors import AlreadyExists, ApiError, NotFound
from lead_operator.kube.client import KubeClient
from lead_operator.kube.kinds import EVENT, KubernetesObject
from lead_operator.memory import Memories, Part
from lead_operator.resources.body import Identity

FLUSH_S = 2.0  # in which a stopping operator sends the rest

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class EventLimits:
    """How often events are sent, and how many may wait."""

    minute_s: float = 60.0  # in which one reason of one resource has one event
    repeat_s: float = 300.0  # a sentence that stays true is counted so often
    unsent: int = 10_000  # some ten megabytes, where the API server takes no events for long
    unsent_of_one: int = 2_000  # namespace; they take turns, so that one with many does not keep another's waiting


@dataclass(slots=True)
class _SentEvent:
    """The last event of one reason of one resource, and the one that waits for its minute to be over."""

    sentence: int  # the hash of its note
    at: float  # monotonic
    count: int
    withheld: tuple[Identity, EventNote, datetime] | None = None
    release: asyncio.TimerHandle | None = None

    def cancel_release(self) -> None:
        """Cancels the delayed event."""
        if self.release is not None:
            self.release.cancel()


@dataclass
class _Sentences(Part):
    """The events of one resource."""

    by_reason: dict[str, _SentEvent] = field(default_factory=dict)

    def close(self) -> None:
        """Cancels all delayed events."""
        for sent in self.by_reason.values():
            sent.cancel_release()


class EventRecorder:
    """Remembers per resource and reason the last event, and its time."""

    def __init__(
        self, client: KubeClient, memories: Memories | None = None, limits: EventLimits | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._client = client
        self._limits = limits or EventLimits()
        self._now = now
        self._memories = memories or Memories()
        self._unsent: RoundRobin[KubernetesObject] = RoundRobin()
        self._something_unsent = asyncio.Event()

    def record(self, identity: Identity, note: EventNote) -> None:
        """Leaves an event on the resource to be sent, now or when its reason's minute is over."""
        sentences = self._memories.of(identity.uid, _Sentences)
        sent, now, happened = sentences.by_reason.get(note.reason), self._now(), datetime.now(UTC)
        if sent is None or now - sent.at >= self._pause_s(sent, note):
            self._emit(identity, note, happened)
        elif sent.sentence == hash(note):
            sent.withheld = None
        else:
            sent.withheld = (identity, note, happened)
            if sent.release is None:
                loop = asyncio.get_running_loop()
                sent.release = loop.call_later(sent.at + self._limits.minute_s - now, self._send_withheld, sent)

    def announce(self, identity: Identity, note: EventNote, happened: datetime) -> None:
        """Leaves an event of another process to be sent, if it is not there: it may have died before."""
        namespace = identity.namespace
        if not self._is_full(namespace):
            self._unsent.put(namespace, build_event(identity, note, happened))
            self._something_unsent.set()

    async def run(self) -> None:
        """Sends until cancelled, and then what is left, for a moment."""
        at: KubernetesObject | None = None  # once more is no harm: its name is taken
        try:
            while True:
                at = await self._next()
                await self._send(at)
                at = None
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_S):
                    if at is not None:
                        await self._send(at)
                    while self._unsent:
                        await self._send(await self._next())

    async def _next(self) -> KubernetesObject:
        while not self._unsent:
            self._something_unsent.clear()
            await self._something_unsent.wait()
        return self._unsent.take(next(self._unsent.namespaces()))

    async def _send(self, event: KubernetesObject) -> None:
        try:
            if event["count"] > 1:
                with contextlib.suppress(NotFound):  # the API server keeps events for an hour
                    await self._client.count_event(event)
                    return
            await self._client.create(event)
        except AlreadyExists:
            return  # the name holds a digest of the message: it exists already
        except ApiError as error:
            sent = {"resource": event["involvedObject"]["name"], "reason": event["reason"]}
            log.warning("event_not_written", **sent, error=str(error))

    def _emit(self, identity: Identity, note: EventNote, happened: datetime) -> None:
        namespace = identity.namespace
        if self._is_full(namespace):
            log.info("event_dropped", resource=identity.name, reason=note.reason)
            return
        by_reason, sentence = self._memories.of(identity.uid, _Sentences).by_reason, hash(note)
        sent = by_reason.get(note.reason)
        count = sent.count + 1 if sent is not None and sent.sentence == sentence else 1
        if sent is not None:
            sent.cancel_release()
        by_reason[note.reason] = _SentEvent(sentence, self._now(), count)
        self._unsent.put(namespace, build_event(identity, note, happened, count))
        self._something_unsent.set()

    def _pause_s(self, sent: _SentEvent, note: EventNote) -> float:
        return self._limits.repeat_s if sent.sentence == hash(note) else self._limits.minute_s

    def _is_full(self, namespace: str) -> bool:
        limits = self._limits
        return len(self._unsent) >= limits.unsent or self._unsent.waiting(namespace) >= limits.unsent_of_one

    def _send_withheld(self, sent: _SentEvent) -> None:
        sent.release = None
        if sent.withheld is not None:
            self._emit(*sent.withheld)


def build_event(identity: Identity, note: EventNote, happened: datetime, count: int = 1) -> KubernetesObject:
    """Returns the event; its name is a function of resource and sentence: a restarted operator repeats nothing."""
    message = on_one_line(note.message)
    digest = hashlib.sha256(f"{identity.uid}\0{note.reason}\0{message}".encode()).hexdigest()[:16]
    stamp = happened.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {"name": f"{identity.name[:200]}.{digest}", "namespace": identity.namespace},
        "involvedObject": {
            "apiVersion": names.API_VERSION,
            "kind": identity.kind,
            "name": identity.name,
            "namespace": identity.namespace,
            "uid": identity.uid,
        },
        "type": note.type,
        "reason": note.reason,
        "message": message[:MAX_EVENT_MESSAGE],
        "source": {"component": names.FIELD_MANAGER},
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": count,
    }
