"""The streams that kopf watches: an error of the server ends a stream and never the operator."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web

from lead_operator.handlers.bounded_session import TEXT, bounded_response
from lead_operator.kube.answers import MAX_OBJECT_BYTES
from lead_operator.kube.fed_informer import FedInformer

RUN = {"apiVersion": "lead.dev/v1alpha1", "kind": "TrainingRun",
       "metadata": {"name": "drive", "namespace": "team-a", "uid": "u", "resourceVersion": "7"},
       "spec": {"recipe": "lead"}}  # fmt: skip
LATER = {**RUN, "metadata": {**RUN["metadata"], "resourceVersion": "8"}}  # type: ignore[dict-item]


class Informer:
    """Takes note of what kopf's watch says between events."""

    name = "trainingruns"
    now = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self.signs_of_life = self.wanted_lists = 0

    async def begin(self) -> str:
        return "41"

    def list_again(self) -> None:
        self.wanted_lists += 1

    def note_sign_of_life(self) -> None:
        self.signs_of_life += 1


async def asked(query: str, informer: Informer, *lines: bytes, status: int = 200, read: Any) -> Any:
    """Returns what `read` makes of kopf's answer to a query, where a server sends these lines."""

    async def serve(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status)
        await response.prepare(request)
        for line in lines:
            await response.write(line)
        return response

    application = web.Application()
    application.router.add_get("/runs", serve)
    runner = web.AppRunner(application)
    await runner.setup()
    answers = bounded_response(lambda path: cast(FedInformer, informer) if path == "/runs" else None)
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        async with (
            aiohttp.ClientSession(response_class=answers) as session,
            session.get(f"http://127.0.0.1:{port}/runs?{query}") as answer,
        ):
            return await read(answer)
    finally:
        await runner.cleanup()


async def events_of(answer: aiohttp.ClientResponse) -> list[dict[str, Any]]:
    async def lines(content: Any) -> AsyncIterator[bytes]:
        async for chunk in content.iter_chunked(1 << 20):
            for line in chunk.splitlines():
                yield line

    return [json.loads(line) async for line in lines(answer.content)]


def seen(*events: dict[str, Any], informer: Informer | None = None) -> list[dict[str, Any]]:
    """Returns what kopf reads of a watch in which a server sends these events."""
    lines = (json.dumps(event).encode() + b"\n" for event in events)
    found: list[dict[str, Any]] = asyncio.run(asked("watch=true", informer or Informer(), *lines, read=events_of))
    return found


def an_error(code: int) -> dict[str, Any]:
    return {"type": "ERROR", "object": {"kind": "Status", "status": "Failure", "code": code, "reason": "InternalError"}}


@pytest.mark.parametrize("error", [an_error(500), an_error(429), {"type": "ERROR", "object": []}])
def test_an_error_ends_the_stream_before_kopf_sees_it_and_a_list_follows(error: dict[str, Any]) -> None:
    """kopf ends the whole operator for an ERROR event other than 410, and hung while it did."""
    informer = Informer()
    events = seen({"type": "ADDED", "object": RUN}, error, {"type": "MODIFIED", "object": LATER}, informer=informer)
    assert [(event["type"], event["object"]["metadata"]["resourceVersion"]) for event in events] == [("ADDED", "7")]
    assert informer.wanted_lists == 1


def test_a_line_without_an_end_ends_the_stream() -> None:
    informer, endless = Informer(), b"l" * (MAX_OBJECT_BYTES + 1)
    assert asyncio.run(asked("watch=true", informer, endless, read=events_of)) == [] and informer.wanted_lists == 1


def test_kopf_is_shown_that_its_version_is_too_old() -> None:
    assert seen(an_error(410)) == [an_error(410)]


def test_of_an_object_kopf_gets_the_identity_and_the_rest_as_one_text() -> None:
    (event,) = seen({"type": "MODIFIED", "object": RUN})
    text = event["object"].pop(TEXT)
    assert "spec" not in event["object"] and event["object"]["metadata"]["name"] == "drive"
    assert json.loads(text) == RUN


def test_an_object_that_nests_too_deep_for_kopf_reaches_it_as_text() -> None:
    deep = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    line = b'{"type":"ADDED","object":' + json.dumps(RUN).encode()[:-1] + b',"status":' + deep + b"}}\n"
    (event,) = asyncio.run(asked("watch=true", Informer(), line, read=events_of))
    assert len(event["object"][TEXT]) > len(deep)


def test_every_line_of_a_watch_is_a_sign_of_life_and_its_agreed_end_asks_for_no_list() -> None:
    informer = Informer()
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}
    assert seen({"type": "ADDED", "object": RUN}, bookmark, informer=informer)[1] == bookmark
    assert (informer.signs_of_life, informer.wanted_lists) == (2, 0)


def test_a_refused_watch_asks_for_a_list_which_tells_why() -> None:
    informer = Informer()

    async def nothing(answer: aiohttp.ClientResponse) -> int:
        return answer.status

    assert asyncio.run(asked("watch=true", informer, b"{}", status=403, read=nothing)) == 403
    assert informer.wanted_lists == 1


def test_kopf_begins_with_the_informers_list_and_sees_no_item() -> None:
    page = json.dumps({"metadata": {"resourceVersion": "999"}, "items": [RUN]}).encode()

    async def parsed(answer: aiohttp.ClientResponse) -> Any:
        return await answer.json()

    found = asyncio.run(asked("limit=1", Informer(), page, read=parsed))
    assert found == {"metadata": {"resourceVersion": "41"}, "items": []}
