"""What a request names, checked against the viewer's rights: what they may not see is as if it did not exist."""

import asyncio
import math
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request

from lead_ui.curves import AXES, Axis
from lead_ui.model import RunKey
from lead_ui.source import Source, Visible
from lead_ui.web.access import Viewer

Found = TypeVar("Found")


def source_of(request: Request) -> Source:
    """Returns the source of the application."""
    found: Source = request.app.state.source
    return found


async def viewer_of(request: Request) -> Viewer:
    """Returns who asks; raises NotSignedIn, AccessUnavailable."""
    viewer: Viewer = await request.app.state.access.viewer(request)
    return viewer


async def visible(request: Request, viewer: Viewer, resource: str) -> Visible:
    """Returns which namespaces' resources of a kind the viewer may list."""
    names = await run_in_threadpool(source_of(request).namespaces)
    if await viewer.may("list", resource, ""):
        return lambda namespace: True
    allowed = await asyncio.gather(*(viewer.may("list", resource, name) for name in names))
    seen = {name for name, may in zip(names, allowed, strict=True) if may}
    return seen.__contains__


async def named(request: Request, viewer: Viewer, resource: str) -> RunKey:
    """Returns the resource that the path names; raises 404 where the viewer may not get it."""
    key = RunKey(request.path_params["namespace"], request.path_params["name"])
    return await permitted(viewer, resource, key)


async def permitted(viewer: Viewer, resource: str, key: RunKey) -> RunKey:
    """Returns the key where the viewer may get the resource; raises 404."""
    if not await viewer.may("get", resource, key.namespace, key.name):
        raise HTTPException(HTTPStatus.NOT_FOUND)
    return key


async def read(function: Callable[..., Found | None], *arguments: Any) -> Found:
    """Calls a method of a source in a thread; raises 404 where there is nothing."""
    found = await run_in_threadpool(function, *arguments)
    if found is None:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    return found


def axis_of(request: Request) -> Axis:
    """Returns the axis that a request names; raises 400."""
    wanted = request.query_params.get("axis", "step")
    for axis in AXES:
        if axis == wanted:
            return axis
    raise HTTPException(HTTPStatus.BAD_REQUEST, f"axis is {wanted[:40]!r}, expected one of {', '.join(AXES)}.")


def span_of(request: Request) -> tuple[float, float] | None:
    """Returns the part of the axis that a request names, None for all; raises 400."""
    given = [request.query_params.get(name) for name in ("from", "to")]
    if given == [None, None]:
        return None
    try:
        first, last = (float(text or "nan") for text in given)
    except ValueError:
        first = last = math.nan
    if not first <= last or math.isinf(first) or math.isinf(last):
        raise HTTPException(HTTPStatus.BAD_REQUEST, "from and to are two numbers, from not above to.")
    return first, last
