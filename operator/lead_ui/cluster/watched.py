"""Copies of runs and caches, kept by watches, and the calls that a page makes besides them; the loop's thread owns it.

Pages are put together in threads: what calls the API server there goes through `ClusterReader.wait`.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from lead_operator.kube.api_errors import ApiError, NotFound
from lead_operator.kube.client import KubeClient
from lead_operator.kube.informer import Informer
from lead_operator.kube.kinds import DATASET_CACHE, EVENT, POD, TRAINING_RUN, Kind, KubernetesObject
from lead_operator.names import Label
from lead_ui.source import SourceUnavailable

Answer = TypeVar("Answer")

CALL_S = 15.0
LOG_LINES, MAX_LOG_BYTES = 1000, 1024 * 1024
MOST_EVENTS = 200  # the newest, of one resource
_POD_METADATA = ("name", "namespace", "labels", "creationTimestamp", "ownerReferences", "resourceVersion", "uid")


class ClusterReader:
    """What pages read of a cluster by the page's own account."""

    def __init__(self, client: KubeClient, namespaces: Sequence[str], loop: asyncio.AbstractEventLoop) -> None:
        self._client, self._loop = client, loop
        self._informers = {kind.kind: [Informer(client, kind, name) for name in namespaces]
                           for kind in (TRAINING_RUN, DATASET_CACHE)}  # fmt: skip
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begins to watch."""
        self._tasks = [asyncio.create_task(informer.run()) for each in self._informers.values() for informer in each]

    async def close(self) -> None:
        """Ends the watches."""
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await self._client.close()

    @property
    def is_ready(self) -> bool:
        """Whether every kind was listed where the page may list it."""
        return all(each.synced.is_set() or each.refused for kind in self._informers.values() for each in kind)

    def all(self, kind: Kind) -> list[KubernetesObject]:
        """Returns the copies of a kind."""
        return [body for informer in self._informers[kind.kind] for body in list(_values(informer.all()))]

    def refusals(self) -> list[str]:
        """Returns what the API server refuses to show to the page."""
        return [each.refused for kind in self._informers.values() for each in kind if each.refused]

    def copy(self, kind: Kind, namespace: str, name: str) -> KubernetesObject | None:
        """Returns the copy of one resource."""
        for informer in self._informers[kind.kind]:
            if (body := informer.get(namespace, name)) is not None:
                return body
        return None

    def whole(self, kind: Kind, namespace: str, name: str) -> KubernetesObject | None:
        """Returns one resource with its config; raises SourceUnavailable."""
        return self.wait(self._client.get(kind, namespace, name, whole=True))

    def pods(self, namespace: str, uid: str) -> list[KubernetesObject]:
        """Returns the pods of a resource, by the label that the operator sets and the owner that the server checks."""
        found, _ = self.wait(self._client.list(POD, namespace, trim=_pod, selector=f"{Label.OWNER_UID}={uid}"))
        return [pod for pod in found if any(owner.get("uid") == uid and owner.get("controller")
                                            for owner in pod["metadata"].get("ownerReferences") or [])]  # fmt: skip

    def events(self, namespace: str, uid: str) -> list[KubernetesObject]:
        """Returns the events about a resource, the newest first; raises SourceUnavailable."""
        fields = f"involvedObject.uid={uid}"
        found, _ = self.wait(self._client.list(EVENT, namespace, trim=lambda body: body, fields=fields))
        return sorted(found, key=event_time, reverse=True)[:MOST_EVENTS]

    def log(self, namespace: str, pod: str, container: str) -> str:
        """Returns the end of a container's log; empty where it has none yet; raises SourceUnavailable."""
        try:
            return self.wait(self._client.log(namespace, pod, container, lines=LOG_LINES, most=MAX_LOG_BYTES))
        except NotFound:
            return ""

    def wait(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        """Makes a call in the loop's thread and returns its answer; raises SourceUnavailable, and NotFound."""
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result(CALL_S)
        except NotFound:
            raise
        except ApiError as error:
            raise SourceUnavailable(f"the API server: {error.message or error}") from error
        except TimeoutError as error:
            future.cancel()
            raise SourceUnavailable(f"the API server has not answered within {CALL_S:.0f} s") from error


def event_time(body: KubernetesObject) -> str:
    """Returns when an event was seen last, RFC 3339."""
    series = body.get("series") or {}
    times = (
        body.get("lastTimestamp"),
        series.get("lastObservedTime"),
        body.get("eventTime"),
        body.get("firstTimestamp"),
    )
    return str(next((time for time in times if time), body["metadata"].get("creationTimestamp", "")))


def _values(copies: Iterable[KubernetesObject]) -> list[KubernetesObject]:
    for _ in range(8):  # the loop's thread may add one meanwhile
        with suppress(RuntimeError):
            return list(copies)
    raise SourceUnavailable("the copies of the cluster change faster than they can be read")


def _pod(body: KubernetesObject) -> KubernetesObject:
    metadata = {key: body["metadata"][key] for key in _POD_METADATA if key in body["metadata"]}
    spec = body.get("spec") or {}
    containers = [{"name": each.get("name", "")} for each in spec.get("containers") or []]
    return {"metadata": metadata, "status": body.get("status") or {},
            "spec": {"nodeName": spec.get("nodeName", ""), "containers": containers}}  # fmt: skip
