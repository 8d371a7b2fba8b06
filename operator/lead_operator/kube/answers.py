"""Answers of the API server: read in portions, parsed, and turned into `api_errors` where they are none.

Used by `kube.client` and, for lines of a watch, by the session that kopf gets (`handlers.bounded_session`).
"""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import aiohttp
import orjson
import structlog

from lead_operator.kube.api_errors import AnswerTooLarge, ApiError, Refused, Unreachable, error_for
from lead_operator.kube.kinds import CUSTOM_KINDS, Kind, KubernetesObject
from lead_operator.kube.object_reader import Unreadable, read_event, read_page, read_resource

MAX_OBJECT_BYTES = 16 * 1024 * 1024  # more than the API server can store in one object

log = structlog.get_logger(__name__)


async def read_answer(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Returns the body of an answer; raises AnswerTooLarge beyond `most` bytes, and reads no more of it."""
    parts, size = list[bytes](), 0
    async for part in response.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > most:
            response.close()
            raise AnswerTooLarge(0, "AnswerTooLarge", f"an answer is longer than {most} bytes")
    return b"".join(parts)


def parse_object(kind: Kind, answer: bytes, *, whole: bool = False) -> KubernetesObject:
    """Returns the object in an answer; raises Unreachable for what is none: it is from a proxy on the way."""
    try:
        if kind in CUSTOM_KINDS:
            return read_resource(answer, whole=whole)
        found: KubernetesObject = orjson.loads(answer)
        return found
    except ValueError as error:
        raise Unreachable(0, type(error).__name__, f"{kind.plural}: {error}") from error


def parse_page(kind: Kind, answer: bytes) -> tuple[list[KubernetesObject], KubernetesObject]:
    """Returns objects and metadata of a page of a list; one that cannot be understood is logged and left out."""
    if kind not in CUSTOM_KINDS:
        page = parse_object(kind, answer)
        return page["items"], page["metadata"]
    try:
        items, metadata = read_page(answer)
    except Unreadable as error:
        raise Unreachable(0, "Unreadable", f"{kind.plural}: {error}") from error
    return [found for item in items if (found := _parse_or_skip(kind, item))], metadata


def parse_event(kind: Kind, line: bytes) -> tuple[str, KubernetesObject]:
    """Returns type and object of an event, which is empty where it cannot be understood; raises Unreachable."""
    try:
        if kind not in CUSTOM_KINDS:
            event = orjson.loads(line)
            return event["type"], event["object"]
        change, raw = read_event(line)
        return change, orjson.loads(raw) if change in ("ERROR", "BOOKMARK") else _parse_or_skip(kind, raw)
    except ValueError as error:
        raise Unreachable(0, type(error).__name__, f"{kind.plural}: {error}") from error


def _parse_or_skip(kind: Kind, raw: bytes) -> KubernetesObject:
    try:
        return read_resource(raw)
    except Unreadable as error:
        log.warning("object_skipped", kind=kind.kind, begins=raw[:200].decode(errors="replace"), error=str(error))
        return {}


async def read_lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yields each line of a watch, of up to MAX_OBJECT_BYTES; raises Refused beyond."""
    # StreamReader.readline gives up on long lines; an object may be larger than its buffer.
    rest = b""
    async for chunk in stream.iter_any():
        rest += chunk
        *complete, rest = rest.split(b"\n")
        for line in complete:
            if line:
                yield line
        if len(rest) > MAX_OBJECT_BYTES:
            raise Refused(0, "LineTooLong", f"a watch event is longer than {MAX_OBJECT_BYTES} bytes")


@contextmanager
def connection_errors(what: str) -> Iterator[None]:
    """Raises Unreachable for everything that a connection ends with; `what` was asked for."""
    try:
        yield
    except TimeoutError as error:
        raise Unreachable(0, "Timeout", f"{what}: no answer in time") from error
    except (aiohttp.ClientError, OSError, json.JSONDecodeError) as error:
        raise Unreachable(0, type(error).__name__, f"{what}: {error}") from error


def parse_error(status: int, answer: bytes) -> ApiError:
    """Returns the error that an answer with a status of 400 or more is."""
    try:
        status_object = json.loads(answer)
        return error_for(status, status_object.get("reason", ""), status_object.get("message", ""))
    except (ValueError, AttributeError):
        return error_for(status, "", answer[:200].decode(errors="replace"))
