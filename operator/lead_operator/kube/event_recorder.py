"""Writes Kubernetes events about custom resources: of one reason one a minute, and each sentence once.

Called by `controllers.apply` after everything else has succeeded; a task of its own sends them one after another, so
that no pass waits for words where others wait for pods. The newest sentence that had to wait is sent when its minute
is over, unless it is what was said last; one that stays true is counted now and then, as Kubernetes counts. An event
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
from lead_operator.decisions.plan import EventNote
from lead_operator.fair_turns import RoundRobin
from lead_operator.kube.api_errors import AlreadyExists, ApiError, NotFound
from lead_operator.kube.client import KubeClient
from lead_operator.kube.kinds import EVENT, KubernetesObject
from lead_operator.memory import Memories, Part

MAX_MESSAGE = 1024  # the API server refuses longer ones
LAST_WORDS_S = 2.0  # in which an operator that ends sends what is left

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class EventLimits:
    """How often is spoken, and how much may wait to be sent."""

    minute_s: float = 60.0  # in which one reason of one resource has one event
    repeat_s: float = 300.0  # a sentence that stays true is counted so often
    unsent: int = 10_000  # some ten megabytes, where the API server takes no events for long
    unsent_of_one: int = 2_000  # namespace; they take turns, so that one with many does not keep another's waiting


@dataclass(slots=True)
class _Told:
    """What was said last of one reason of one resource, and what waits for its minute to be over."""

    sentence: int  # the hash of its note
    at: float  # monotonic
    count: int
    withheld: tuple[KubernetesObject, EventNote, datetime] | None = None
    release: asyncio.TimerHandle | None = None

    def cancel_release(self) -> None:
        """Lets what waits not be said by itself."""
        if self.release is not None:
            self.release.cancel()


@dataclass
class _Sentences(Part):
    """What was said of one resource."""

    by_reason: dict[str, _Told] = field(default_factory=dict)

    def close(self) -> None:
        """What still waits for its minute is not said any more."""
        for told in self.by_reason.values():
            told.cancel_release()


class EventRecorder:
    """Remembers per resource and reason what was said last, and when."""

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

    def record(self, body: KubernetesObject, note: EventNote) -> None:
        """Leaves an event on the resource to be sent, now or when its reason's minute is over."""
        sentences = self._memories.of(body["metadata"]["uid"], _Sentences)
        told, now, happened = sentences.by_reason.get(note.reason), self._now(), datetime.now(UTC)
        if told is None or now - told.at >= self._pause_s(told, note):
            self._say(body, note, happened)
        elif told.sentence == hash(note):
            told.withheld = None
        else:
            told.withheld = (body, note, happened)
            if told.release is None:
                loop = asyncio.get_running_loop()
                told.release = loop.call_later(told.at + self._limits.minute_s - now, self._say_what_waited, told)

    def announce(self, body: KubernetesObject, note: EventNote, happened: datetime) -> None:
        """Leaves an event of another process to be sent, if it is not there: it may have died before."""
        namespace = body["metadata"]["namespace"]
        if not self._is_full(namespace):
            self._unsent.put(namespace, build_event(body, note, happened))
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
                async with asyncio.timeout(LAST_WORDS_S):
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
            return  # the name holds a digest of the sentence: it has been said
        except ApiError as error:
            told = {"resource": event["involvedObject"]["name"], "reason": event["reason"]}
            log.warning("event_not_written", **told, error=str(error))

    def _say(self, body: KubernetesObject, note: EventNote, happened: datetime) -> None:
        namespace = body["metadata"]["namespace"]
        if self._is_full(namespace):
            log.info("event_dropped", resource=body["metadata"]["name"], reason=note.reason)
            return
        said, sentence = self._memories.of(body["metadata"]["uid"], _Sentences).by_reason, hash(note)
        told = said.get(note.reason)
        count = told.count + 1 if told is not None and told.sentence == sentence else 1
        if told is not None:
            told.cancel_release()
        said[note.reason] = _Told(sentence, self._now(), count)
        self._unsent.put(namespace, build_event(body, note, happened, count))
        self._something_unsent.set()

    def _pause_s(self, told: _Told, note: EventNote) -> float:
        return self._limits.repeat_s if told.sentence == hash(note) else self._limits.minute_s

    def _is_full(self, namespace: str) -> bool:
        limits = self._limits
        return len(self._unsent) >= limits.unsent or self._unsent.waiting(namespace) >= limits.unsent_of_one

    def _say_what_waited(self, told: _Told) -> None:
        told.release = None
        if told.withheld is not None:
            self._say(*told.withheld)


def build_event(body: KubernetesObject, note: EventNote, happened: datetime, count: int = 1) -> KubernetesObject:
    """Returns the event; its name is a function of resource and sentence: a restarted operator repeats nothing."""
    metadata, message = body["metadata"], on_one_line(note.message)
    digest = hashlib.sha256(f"{metadata['uid']}\0{note.reason}\0{message}".encode()).hexdigest()[:16]
    stamp = happened.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {"name": f"{metadata['name'][:200]}.{digest}", "namespace": metadata["namespace"]},
        "involvedObject": {
            "apiVersion": names.API_VERSION,
            "kind": body["kind"],
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
        "type": note.type,
        "reason": note.reason,
        "message": message[:MAX_MESSAGE],
        "source": {"component": names.FIELD_MANAGER},
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": count,
    }
