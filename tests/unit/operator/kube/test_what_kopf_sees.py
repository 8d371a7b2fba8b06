"""The streams that kopf watches: an error of the server ends a stream and never the operator."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from lead_operator.handlers.bounded_session import BoundedResponse

RUN = {"apiVersion": "lead.dev/v1alpha1", "kind": "TrainingRun",
       "metadata": {"name": "drive", "namespace": "team-a", "uid": "u", "resourceVersion": "7"},
       "spec": {"recipe": "lead"}}  # fmt: skip
LATER = {**RUN, "metadata": {**RUN["metadata"], "resourceVersion": "8"}}  # type: ignore[dict-item]


async def seen(*events: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns what kopf reads of a watch in which a server sends these events."""

    async def watch(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for event in events:
            await response.write(json.dumps(event).encode() + b"\n")
        return response

    async def lines(content: Any) -> AsyncIterator[bytes]:
        async for chunk in content.iter_chunked(1 << 20):
            for line in chunk.splitlines():
                yield line

    application = web.Application()
    application.router.add_get("/watch", watch)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        async with (
            aiohttp.ClientSession(response_class=BoundedResponse) as session,
            session.get(f"http://127.0.0.1:{port}/watch?watch=true") as answer,
        ):
            return [json.loads(line) async for line in lines(answer.content)]
    finally:
        await runner.cleanup()


def an_error(code: int) -> dict[str, Any]:
    return {"type": "ERROR", "object": {"kind": "Status", "status": "Failure", "code": code, "reason": "InternalError"}}


@pytest.mark.parametrize("error", [an_error(500), an_error(429), {"type": "ERROR", "object": []}])
def test_an_error_ends_the_stream_before_kopf_sees_it(error: dict[str, Any]) -> None:
    """kopf ends the whole operator for an ERROR event other than 410, and hung while it did."""
    events = asyncio.run(seen({"type": "ADDED", "object": RUN}, error, {"type": "MODIFIED", "object": LATER}))
    assert [(event["type"], event["object"]["metadata"]["resourceVersion"]) for event in events] == [("ADDED", "7")]


def test_a_line_without_an_end_ends_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lead_operator.kube.client.MAX_OBJECT_BYTES", 1000)
    long = {"type": "ADDED", "object": {**RUN, "spec": {"recipe": "l" * 3_000_000}}}
    assert asyncio.run(seen(long)) == []


def test_kopf_is_shown_that_its_version_is_too_old() -> None:
    assert asyncio.run(seen(an_error(410))) == [an_error(410)]


def test_of_an_object_its_identity_alone_is_left() -> None:
    (event,) = asyncio.run(seen({"type": "MODIFIED", "object": RUN}))
    assert "spec" not in event["object"] and event["object"]["metadata"]["name"] == "drive"
