"""The answers that a fault proxy gives instead of the API server, or passes on from it."""

from typing import Any

from aiohttp import web


async def begin_stream(request: web.BaseRequest) -> web.StreamResponse:
    """Begins the answer to a watch."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    return response


def hang_up(request: web.BaseRequest) -> web.StreamResponse:
    """Breaks the connection without an answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def error_body(code: int, reason: str, message: str) -> dict[str, Any]:
    """Returns the Status object of an error."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": reason,
            "message": message}  # fmt: skip


def refuse(code: int, reason: str, message: str, headers: dict[str, str] | None = None) -> web.Response:
    """Returns an error of the API server's kind."""
    return web.json_response(error_body(code, reason, message), status=code, headers=headers)


def pass_on(status: int, payload: bytes, content_type: str = "application/json") -> web.Response:
    """Returns what the API server has answered."""
    return web.Response(status=status, body=payload, headers={"Content-Type": content_type})
