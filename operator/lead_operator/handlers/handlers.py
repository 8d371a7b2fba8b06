"""What kopf calls: login, start, stop, and an event of each of the two kinds.

Made for `handlers.startup`. kopf logs in, watches both kinds and orders the events of each object; nothing here
decides or writes. An event renews the operator's copy of its resource, which requests a pass over it: the newest state
counts and not what changed, and a list corrects what no event reported (`kube.fed_informer`). It holds the identity of
its object, which kopf goes by, and its text, which is read here (`handlers.bounded_session`).
"""

import asyncio
import contextlib
import os
from typing import Any

import kopf
import structlog

from lead_operator import names
from lead_operator.controllers.manager import Manager
from lead_operator.handlers.bounded_session import TEXT, with_bounded_session
from lead_operator.kube.informers import Informers
from lead_operator.kube.kinds import DATASET_CACHE, TRAINING_RUN, Kind
from lead_operator.kube.object_reader import Unreadable, read_resource

log = structlog.get_logger(__name__)


def build_registry(manager: Manager, stop: asyncio.Event, failures: list[BaseException]) -> kopf.OperatorRegistry:
    """Returns kopf's handlers; how the operator has failed is added to `failures`, and `stop` is set when it ends."""
    registry = kopf.OperatorRegistry()
    running: list[asyncio.Task[None]] = []

    @kopf.on.login(registry=registry)  # type: ignore[untyped-decorator]
    async def login(**arguments: Any) -> kopf.AiohttpSession | None:
        info = None if "KUBECONFIG" in os.environ else kopf.login_with_service_account(**arguments)
        info = info or kopf.login_with_kubeconfig(**arguments)
        return info and with_bounded_session(info, manager.informers.fed_at)

    @kopf.on.startup(registry=registry)  # type: ignore[untyped-decorator]
    async def start(**_: Any) -> None:
        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                failures.append(error)
            stop.set()

        task = asyncio.create_task(manager.run(), name="lead operator")
        task.add_done_callback(ended)
        running.append(task)
        # kopf discovers the kinds once, when this returns: both are there as soon as a namespace has been listed.
        synced = asyncio.create_task(manager.informers.synced())
        try:
            await asyncio.wait((task, synced), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # kopf cleans up after what has started only
            await end()
            raise
        finally:
            synced.cancel()

    @kopf.on.cleanup(registry=registry)  # type: ignore[untyped-decorator]
    async def end(**_: Any) -> None:
        for task in running:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):  # reported by `ended`
                await task

    register_kinds(registry, manager.informers)
    return registry


def register_kinds(registry: kopf.OperatorRegistry, informers: Informers) -> None:
    """Registers the handlers of both kinds."""

    @kopf.on.event(names.GROUP, names.VERSION, TRAINING_RUN.plural, registry=registry)  # type: ignore[untyped-decorator]
    async def training_run(event: kopf.RawEvent, **_: Any) -> None:
        take(informers, TRAINING_RUN, event)

    @kopf.on.event(names.GROUP, names.VERSION, DATASET_CACHE.plural, registry=registry)  # type: ignore[untyped-decorator]
    async def dataset_cache(event: kopf.RawEvent, **_: Any) -> None:
        take(informers, DATASET_CACHE, event)


def take(informers: Informers, kind: Kind, event: kopf.RawEvent) -> None:
    """Hands an event to the informer of its kind and namespace."""
    seen: dict[str, Any] = event["object"]
    informer = informers.fed(kind, seen["metadata"]["namespace"])
    if informer is None:
        return
    text: str = seen.pop(TEXT)  # kopf keeps what is left
    try:
        informer.take(event["type"], read_resource(text.encode()))
    except Unreadable as error:
        log.warning("object_skipped", watch=informer.name, begins=text[:200], error=str(error))
