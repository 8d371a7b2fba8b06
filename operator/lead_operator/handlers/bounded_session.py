"""The HTTP session that kopf watches with: between an API server that may send anything and a framework that trusts it.

Used by `handlers.startup` at login. kopf parses every event whole and keeps it until a handler has had it; a resource
that is deep enough would end its watch, and with it the process. So kopf is shown who an object is and, as one text,
what it is, which `handlers.handlers` reads as every other answer of the server (`kube.object_reader`). The list that
kopf begins a watch with is the informer's own, in bounded pages: kopf gets the version to watch from. What the server
reports between events (connected, disconnected) goes to the informer, which the watchdog checks.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from typing import Any

import aiohttp
import kopf
import orjson
import structlog

from lead_operator.kube.answers import read_lines
from lead_operator.kube.api_errors import Refused
from lead_operator.kube.fed_informer import FedInformer
from lead_operator.kube.informer import FIRST_PAUSE_S
from lead_operator.kube.object_reader import Unreadable, read_event, read_identity

LIST_ITEMS = 1  # asked for by kopf, as settings.watching.chunk_size; none of them reaches it
TEXT = "text"  # a key beside metadata: the object as the server wrote it
SHORT_S = 1.0  # a server that ends watches faster is not asked in a tight loop

FindInformer = Callable[[str], FedInformer | None]  # by the URL path of a collection

log = structlog.get_logger(__name__)


def with_bounded_session(info: kopf.ConnectionInfo, informer_of: FindInformer) -> kopf.AiohttpSession:
    """Returns the same connection with a session of ours; kopf closes it. To be called in the event loop."""
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
        headers=info.as_http_headers(),
        proxy=info.proxy_url,
        trust_env=info.trust_env,
        response_class=bounded_response(informer_of),
    )
    return kopf.AiohttpSession(
        server=info.server,
        default_namespace=info.default_namespace,
        priority=info.priority,
        expiration=info.expiration,
        aiohttp_session=session,
    )


def bounded_response(informer_of: FindInformer) -> type["BoundedResponse"]:
    """Returns the class of answers for a session whose watches feed these informers."""

    class Feeding(BoundedResponse):
        @property
        def informer(self) -> FedInformer | None:
            return informer_of(self.url.path)

    return Feeding


class BoundedResponse(aiohttp.ClientResponse):
    """An answer whose list is the informer's, and whose watch events are identity and text; all else is as it came."""

    @property
    def informer(self) -> FedInformer | None:
        """The informer of the collection that was asked for; None of anything else."""
        return None

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        """Waits for the head of the answer, as in aiohttp."""
        await super().start(connection)
        informer = self.informer if self.url.query.get("watch") == "true" else None
        if informer is not None and self.status >= 400:
            informer.list_again()  # it logs what is rejected, and when it is served again
        elif informer is not None:
            self.content = _Events(self.content, informer)  # type: ignore[assignment]
        return self

    async def json(self, **arguments: Any) -> Any:
        """Returns the parsed body, as in aiohttp; of a list no item, and the version of the informer's list."""
        informer = self.informer if "limit" in self.url.query and self.status < 400 else None
        if informer is None:
            return await super().json(**arguments)
        self.close()  # whatever the one item is
        return {"metadata": {"resourceVersion": await informer.begin()}, "items": []}


class _Events:
    """A stream of watch events, each of identity and text; for everything else the stream itself."""

    def __init__(self, stream: aiohttp.StreamReader, informer: FedInformer) -> None:
        self._stream = stream
        self._informer = informer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yields whole lines, of whatever size, up to the first that kopf would end the operator for."""
        began, whole = self._informer.now(), False
        try:
            async for line in read_lines(self._stream):
                self._informer.note_sign_of_life()
                try:
                    event = cut_down(line)
                except Unreadable as error:
                    begins = line[:200].decode(errors="replace")
                    log.warning("object_skipped", watch=self._informer.name, begins=begins, error=str(error))
                    continue
                if event is None:
                    log.warning("watch_broken", watch=self._informer.name, error=line[:300].decode(errors="replace"))
                    return  # kopf watches once more
                yield event
            whole = True
        except Refused as error:  # a line that is too long
            log.warning("watch_broken", watch=self._informer.name, error=str(error))
        finally:
            if not whole:
                self._informer.list_again()
        if self._informer.now() - began < SHORT_S:
            await asyncio.sleep(FIRST_PAUSE_S)


def cut_down(line: bytes) -> bytes | None:
    """Returns a watch event whose object is identity and text; raises Unreadable.

    None for an error but 410 Gone: kopf would end the whole operator for what passes when the watch begins once more.
    """
    change, found = read_event(line)
    if change == "ERROR" and not _is_gone(found):
        return None
    if change in ("ERROR", "BOOKMARK"):  # of the server alone
        return line + b"\n"
    identity = read_identity(found)
    try:
        return orjson.dumps({"type": change, "object": {**identity, TEXT: found.decode()}}) + b"\n"
    except UnicodeDecodeError as error:
        raise Unreadable(f"an object that is no UTF-8: {error}") from error


def _is_gone(status: bytes) -> bool:
    try:
        found = orjson.loads(status)
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("code") == HTTPStatus.GONE
