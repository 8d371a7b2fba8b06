"""Starts kopf around the operator, with settings that keep it from writing.

Called by `__main__ run`. kopf posts no events, adds no annotation and no finalizer, scans for nothing and has no
peers; where its part or ours ends, both end.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import kopf
import structlog

from lead_operator.controllers.manager import Manager
from lead_operator.errors import LeadOperatorError
from lead_operator.handlers.bounded_session import LIST_ITEMS
from lead_operator.handlers.handlers import build_registry
from lead_operator.handlers.health import start_servers
from lead_operator.kube.client import CONNECT_TIMEOUT_S, WATCH_GRACE_S, KubeClient
from lead_operator.kube.informer import LONGEST_PAUSE_S
from lead_operator.kube.lease import LeaseLost
from lead_operator.kube.rate_limiter import RateLimiter
from lead_operator.kube.watchdog import WatchStalled
from lead_operator.settings import Settings

log = structlog.get_logger(__name__)


Serve = Callable[[Settings, list[BaseException]], Awaitable[None]]


async def serve(settings: Settings, failures: list[BaseException]) -> None:
    """Runs kopf and the operator in it; how the operator has failed is added to `failures`."""
    client = await KubeClient.connect(RateLimiter(settings.api_in_flight, settings.api_calls_per_second))
    try:
        manager, stop = Manager(client, settings), asyncio.Event()
        health = await start_servers(manager, client, settings)
        try:
            await kopf.operator(
                registry=build_registry(manager, stop, failures),
                settings=thin_settings(settings.resync_s),
                standalone=True,
                namespaces=() if settings.run_namespaces == ("",) else settings.run_namespaces,
                clusterwide=settings.run_namespaces == ("",),
                stop_flag=stop,
            )
        finally:
            await health.cleanup()
    finally:
        await client.close()


async def run_operator(settings: Settings, serve: Serve = serve) -> int:
    """Runs until `serve` ends, by a signal or a failure; returns the exit status of the process.

    The last log line of a process that fails names every cause; one that is no decision of ours has its traceback
    before. Raises SettingsError, whose sentence the command line prints.
    """
    failures = list[BaseException]()
    try:
        await serve(settings, failures)
    except LeadOperatorError:
        raise
    except Exception as error:  # whatever it is, the process ends of it, and somebody has to learn of what
        failures.append(error)
    if not failures:
        return 0
    for failure in failures:
        if not all(isinstance(cause, (WatchStalled, LeaseLost)) for cause in _causes(failure)):
            log.error("operator_failed", exc_info=failure)
    log.error("operator_ends", error="; ".join(_sentence(cause) for each in failures for cause in _causes(each)))
    return 1


class _NoState(kopf.DiffBaseStorage):  # type: ignore[misc]
    """Keeps nothing of what kopf would compare the next event with: our handlers ask for no differences."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None


class _ForEver:
    """Pauses in seconds between tries that never end: a namespace that is gone must not end the watches of others.

    Whether this process still receives events is the watchdog's decision.
    """

    def __iter__(self) -> Iterator[float]:
        return itertools.chain((1, 2, 3, 5, 10), itertools.repeat(LONGEST_PAUSE_S))


def thin_settings(watch_s: float) -> kopf.OperatorSettings:
    """Returns kopf's settings with everything off that writes, scans or peers; a watch lasts `watch_s` seconds."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.persistence.diffbase_storage = _NoState()
    settings.watching.chunk_size = LIST_ITEMS
    settings.watching.server_timeout = int(watch_s)
    settings.watching.client_timeout = settings.watching.inactivity_timeout = watch_s + WATCH_GRACE_S
    settings.watching.connect_timeout = CONNECT_TIMEOUT_S
    settings.networking.error_backoffs = _ForEver()
    return settings


def _causes(failure: BaseException) -> Iterator[BaseException]:
    """Yields what a failure consists of: the tasks that fail together are one group."""
    if isinstance(failure, BaseExceptionGroup):
        for part in failure.exceptions:
            yield from _causes(part)
    else:
        yield failure


def _sentence(cause: BaseException) -> str:
    return f"{type(cause).__name__}: {cause}"
