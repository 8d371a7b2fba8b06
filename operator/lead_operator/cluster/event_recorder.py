"""Writes Kubernetes events about custom resources: each sentence once, and few of one reason at a time.

Called by `cluster.apply` after everything else has succeeded; a task of its own sends them one after another, so that
no pass waits for words where others wait for pods. An event is a courtesy to people: one that cannot be written is
logged and forgotten, and no decision ever reads one.
"""

import asyncio
import contextlib
import hashlib
import time
from datetime import UTC, datetime

import structlog

from lead_operator import names
from lead_operator.cluster.api_errors import AlreadyExists, ApiError
from lead_operator.cluster.client import KubeClient
from lead_operator.cluster.kinds import EVENT, KubernetesObject
from lead_operator.decisions.plan import EventNote

BURST = 5  # of one reason on one resource; afterwards one a minute
REFILL_S = 60.0
MAX_MESSAGE = 1024  # the API server refuses longer ones
LAST_WORDS_S = 2.0  # in which an operator that ends sends what is left
MAX_UNSENT = 10_000  # some ten megabytes, where the API server takes no events for long

log = structlog.get_logger(__name__)


class EventRecorder:
    """Remembers per (resource, reason) how many events may still be written."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._budgets: dict[tuple[str, str], tuple[float, float]] = {}  # tokens left, when counted
        self._unsent: asyncio.Queue[KubernetesObject] = asyncio.Queue(MAX_UNSENT)

    def record(self, body: KubernetesObject, note: EventNote) -> None:
        """Leaves one event on the resource to be sent, unless its reason's budget is used up or too many wait."""
        if self._unsent.full() or not self._allowed(body["metadata"]["uid"], note.reason):
            log.info("event_dropped", resource=body["metadata"]["name"], reason=note.reason)
            return
        self._unsent.put_nowait(build_event(body, note, datetime.now(UTC)))

    async def run(self) -> None:
        """Sends until cancelled, and then what is left, for a moment."""
        at: KubernetesObject | None = None  # once more is no harm: its name is taken
        try:
            while True:
                at = await self._unsent.get()
                await self._send(at)
                at = None
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS_S):
                    if at is not None:
                        await self._send(at)
                    while not self._unsent.empty():
                        await self._send(self._unsent.get_nowait())

    async def _send(self, event: KubernetesObject) -> None:
        try:
            await self._client.create(event)
        except AlreadyExists:
            return  # the name holds a digest of the sentence: it has been said
        except ApiError as error:
            told = {"resource": event["involvedObject"]["name"], "reason": event["reason"]}
            log.warning("event_not_written", **told, error=str(error))

    def forget(self, uid: str) -> None:
        """Drops what is remembered of a resource that is gone."""
        self._budgets = {key: value for key, value in self._budgets.items() if key[0] != uid}

    def _allowed(self, uid: str, reason: str) -> bool:
        now = time.monotonic()
        tokens, counted = self._budgets.get((uid, reason), (float(BURST), now))
        tokens = min(float(BURST), tokens + (now - counted) / REFILL_S)
        allowed = tokens >= 1
        self._budgets[(uid, reason)] = (tokens - 1 if allowed else tokens, now)
        return allowed


def build_event(body: KubernetesObject, note: EventNote, now: datetime) -> KubernetesObject:
    """Returns the event; its name is a function of resource and sentence: a restarted operator repeats nothing."""
    metadata = body["metadata"]
    digest = hashlib.sha256(f"{metadata['uid']}\0{note.reason}\0{note.message}".encode()).hexdigest()[:16]
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
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
        "message": note.message[:MAX_MESSAGE],
        "source": {"component": names.FIELD_MANAGER},
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
