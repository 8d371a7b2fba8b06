"""The HTTP session that kopf watches with: of any object it sees who it is, and nothing that its owner chose.

Used by `handlers.startup` at login. kopf parses every event whole and keeps it until a handler has had it; a resource
that is deep enough would end its watch, and with it the process, and fifty large ones all memory. Our handlers need a
name and a version. So events are cut down before kopf reads them, and of its first LIST only the version to watch from
is left: the informers list everything in bounded pages, and their events do not depend on kopf.
"""

from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import aiohttp
import kopf
import orjson
import structlog

from lead_operator.kube.api_errors import Refused
from lead_operator.kube.client import read_lines
from lead_operator.kube.object_reader import Unreadable, read_event, read_identity, read_page

FIRST_LIST_ITEMS = 1  # asked for by kopf, as settings.watching.chunk_size; none of them reaches it

log = structlog.get_logger(__name__)


def with_bounded_session(info: kopf.ConnectionInfo) -> kopf.AiohttpSession:
    """Returns the same connection with a session of ours; kopf closes it. To be called in the event loop."""
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
        headers=info.as_http_headers(),
        proxy=info.proxy_url,
        trust_env=info.trust_env,
        response_class=BoundedResponse,
    )
    return kopf.AiohttpSession(
        server=info.server,
        default_namespace=info.default_namespace,
        priority=info.priority,
        expiration=info.expiration,
        aiohttp_session=session,
    )


class BoundedResponse(aiohttp.ClientResponse):
    """A response whose lists are empty and whose watch events hold identities alone; all else is as it came."""

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        """Waits for the head of the answer, as in aiohttp."""
        await super().start(connection)
        if self.status < 400 and self.url.query.get("watch") == "true":
            self.content = _Identities(self.content)  # type: ignore[assignment]
        return self

    async def json(self, **arguments: Any) -> Any:
        """Returns the parsed body, as in aiohttp; of a list its metadata."""
        if self.status >= 400 or "limit" not in self.url.query:
            return await super().json(**arguments)
        try:
            _, metadata = read_page(await self.read())
        except Unreadable as error:
            raise aiohttp.ClientPayloadError(str(error)) from error  # kopf begins its watch once more
        return {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "items": []}


class _Identities:
    """A stream of watch events, each cut down to type and identity; for everything else the stream itself."""

    def __init__(self, stream: aiohttp.StreamReader) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yields whole lines, of whatever size, up to the first that kopf would end the operator for."""
        try:
            async for line in read_lines(self._stream):
                try:
                    event = cut_down(line)
                except Unreadable as error:  # the informer of the kind logs it with what can be told
                    log.debug("event_skipped", error=str(error))
                    continue
                if event is None:
                    log.warning("watch_broken", error=line[:300].decode(errors="replace"))
                    return  # kopf watches once more
                yield event
        except Refused as error:  # a line that is too long
            log.warning("watch_broken", error=str(error))


def cut_down(line: bytes) -> bytes | None:
    """Returns a watch event with nothing but the identity of its object; raises Unreadable.

    None for an error but 410 Gone: kopf would end the whole operator for what passes when the watch begins once more.
    """
    change, found = read_event(line)
    if change == "ERROR" and not _is_gone(found):
        return None
    if change in ("ERROR", "BOOKMARK"):  # of the server alone
        return line + b"\n"
    return orjson.dumps({"type": change, "object": read_identity(found)}) + b"\n"


def _is_gone(status: bytes) -> bool:
    try:
        found = orjson.loads(status)
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("code") == HTTPStatus.GONE
