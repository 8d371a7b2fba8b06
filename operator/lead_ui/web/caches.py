"""The table of caches, the page of one, and what lies in the bucket."""

from dataclasses import replace

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from lead_ui.web.access import CACHES, EVENTS, RUNS
from lead_ui.web.asked import named, read, source_of, viewer_of, visible
from lead_ui.web.render import page


async def table(request: Request) -> Response:
    """Shows all caches that the viewer may list."""
    viewer = await viewer_of(request)
    rows = await run_in_threadpool(source_of(request).caches, await visible(request, viewer, CACHES))
    return page(request, "caches.html", viewer, title="Caches", rows=sorted(rows, key=lambda row: str(row.key)))


async def cache(request: Request) -> Response:
    """Shows one cache."""
    viewer = await viewer_of(request)
    key = await named(request, viewer, CACHES)
    found = await read(source_of(request).cache, key)
    if not await viewer.may("list", EVENTS, key.namespace):
        found = replace(found, events=())
    if not await viewer.may("list", RUNS, key.namespace):
        found = replace(found, row=replace(found.row, used_by=()))
    return page(request, "cache.html", viewer, title=key.name, cache=found)


async def space(request: Request) -> Response:
    """Shows what lies in the bucket, by run and cache, in the namespaces where the viewer may list both."""
    viewer = await viewer_of(request)
    runs = await visible(request, viewer, RUNS)
    caches = await visible(request, viewer, CACHES)
    both = lambda namespace: runs(namespace) and caches(namespace)  # noqa: E731
    found = await run_in_threadpool(source_of(request).holdings, both)
    found = sorted(found, key=lambda each: -each.size_bytes)
    return page(request, "space.html", viewer, title="Space", holdings=found,
                total=sum(each.size_bytes for each in found),
                may_go=sum(each.size_bytes for each in found if each.may_go),
                widest=max((each.size_bytes for each in found), default=0))  # fmt: skip
