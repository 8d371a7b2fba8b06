"""Writes Kubernetes events about custom resources: each sentence once, and few of one reason at a time.

Called by `cluster.apply` after everything else has succeeded. An event is a courtesy to people: one that cannot be
written is logged and forgotten, and no decision ever reads one.
"""

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

log = structlog.get_logger(__name__)


class EventRecorder:
    """Remembers per (resource, reason) how many events may still be written."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._budgets: dict[tuple[str, str], tuple[float, float]] = {}  # tokens left, when counted

    async def record(self, body: KubernetesObject, note: EventNote) -> None:
        """Writes one event on the resource, unless the same sentence was written or its reason's budget is used up."""
        if not self._allowed(body["metadata"]["uid"], note.reason):
            log.info("event_dropped", resource=body["metadata"]["name"], reason=note.reason)
            return
        try:
            await self._client.create(build_event(body, note, datetime.now(UTC)))
        except AlreadyExists:
            return  # the name holds a digest of the sentence: it has been said
        except ApiError as error:
            log.warning("event_not_written", resource=body["metadata"]["name"], reason=note.reason, error=str(error))

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
