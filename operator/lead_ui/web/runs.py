"""The table of runs and the page of one run."""

from dataclasses import replace
from http import HTTPStatus

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from lead_ui.curves import sparkline
from lead_ui.event_files.instance_events import StoredPicture
from lead_ui.log_lines import read_lines
from lead_ui.model import Run, RunKey
from lead_ui.source import InstanceCurves
from lead_ui.timeline import timeline
from lead_ui.web.access import CACHES, EVENTS, LOGS, PODS, RUNS, Viewer
from lead_ui.web.asked import axis_of, named, read, source_of, span_of, viewer_of, visible
from lead_ui.web.curve_answers import RunCurves, answer, marks, sections, tags_of
from lead_ui.web.render import page
from lead_ui.web.run_table import COLUMNS, arranged

TABS = ("timeline", "pictures", "checkpoints", "conditions", "config")
LOSS_TAGS = ("epoch/loss", "val/loss")  # by which a run is drawn in the table
MOST_SPARK_POINTS = 200
_FORMATS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"\xff\xd8\xff": "image/jpeg",
}


async def table(request: Request) -> Response:
    """Shows all runs that the viewer may list."""
    viewer = await viewer_of(request)
    rows = await run_in_threadpool(source_of(request).runs, await visible(request, viewer, RUNS))
    return page(request, "runs.html", viewer, title="Runs", columns=list(COLUMNS.items()),
                table=arranged(rows, request.query_params))  # fmt: skip


async def curves(request: Request) -> Response:
    """Shows the curves of one run."""
    viewer, run = await _run(request)
    found = await _curves(request, run.row.key)
    tags = tags_of([RunCurves("", found)])
    return page(request, "curves.html", viewer, title=str(run.row.key.name), run=run, tab="curves",
                sections=sections(tags), notes=run.notes)  # fmt: skip


async def tab(request: Request) -> Response:
    """Shows another page of one run."""
    name = request.path_params["tab"]
    if name not in TABS:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    viewer, run = await _run(request)
    values = {"title": run.row.key.name, "run": run, "tab": name}
    if name == "timeline":
        values["timeline"] = timeline(run)
    if name == "pictures":
        values["pictures"] = _pictures(await _curves(request, run.row.key))
    return page(request, f"{name}.html", viewer, **values)


async def curve_data(request: Request) -> Response:
    """Answers with the lines of some tags, and with what is marked on the axis."""
    viewer = await viewer_of(request)
    key = await named(request, viewer, RUNS)
    found = await _curves(request, key)
    axis, span = axis_of(request), span_of(request)
    tags, seeds = request.query_params.getlist("tag"), request.query_params.get("seeds") == "mean"
    charts = await run_in_threadpool(answer, [RunCurves(key.name, found)], tags, axis, span, seeds=seeds)
    content: dict[str, object] = {"charts": charts}
    if request.query_params.get("marks") == "true":
        run = await read(source_of(request).run, key)
        content["marks"] = marks(run, found, axis)
    return JSONResponse(content)


async def spark(request: Request) -> Response:
    """Draws the course of the loss over the whole run, stage after stage."""
    viewer = await viewer_of(request)
    key = await named(request, viewer, RUNS)
    found = await _curves(request, key)
    points = ""
    for tag in LOSS_TAGS:
        parts = [each.history.series[tag].values for each in found.values() if tag in each.history.series]
        values = [value for part in parts[-1:] for value in part][-MOST_SPARK_POINTS:]
        if points := sparkline(values, 96, 22):
            break
    # Kept for a moment: a live table is replaced every two seconds.
    kept = {"Cache-Control": "private, max-age=20", "Vary": "Cookie, Authorization"}
    return Response(_svg(points), media_type="image/svg+xml", headers=kept)


async def picture(request: Request) -> Response:
    """Answers with one picture or clip, as the trainer encoded it."""
    viewer = await viewer_of(request)
    key = await named(request, viewer, RUNS)
    wanted = request.query_params
    found = (await _curves(request, key)).get(wanted.get("instance", ""))
    stored = next((each for each in found.history.pictures if each.at.tag == wanted.get("tag")
                   and str(each.at.step) == wanted.get("step")), None) if found else None  # fmt: skip
    if found is None or stored is None:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    data = await run_in_threadpool(found.picture, stored)
    kind = next((kind for head, kind in _FORMATS.items() if data.startswith(head)), None)
    if kind is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, "The event file holds no PNG, JPEG or GIF there.")
    return Response(data, media_type=kind)


async def logs(request: Request) -> Response:
    """Shows the end of the log of one of the run's pods."""
    viewer, run = await _run(request)
    if not run.has_logs:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    wanted = request.query_params.get("pod") or next((pod.name for pod in run.pods), "")
    text = await run_in_threadpool(source_of(request).logs, run.row.key, wanted) if wanted else ""
    if text is None:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    return page(request, "logs.html", viewer, title=run.row.key.name, run=run, tab="logs", pod=wanted,
                lines=read_lines(text))  # fmt: skip


async def _run(request: Request) -> tuple[Viewer, Run]:
    """Returns who asks, and the run without what they may not see of it."""
    viewer = await viewer_of(request)
    key = await named(request, viewer, RUNS)
    run = await read(source_of(request).run, key)
    events = await viewer.may("list", EVENTS, key.namespace)
    pods = await viewer.may("list", PODS, key.namespace)
    shows_logs = run.has_logs and pods and await viewer.may("get", LOGS, key.namespace)
    shows_caches = await viewer.may("list", CACHES, key.namespace)
    attempts = run.attempts
    if not events:
        attempts = tuple(replace(each, noted="") for each in attempts)
    if not pods:
        attempts = tuple(replace(each, pods=(), nodes=()) for each in attempts)
    return viewer, replace(
        run,
        attempts=attempts,
        events=run.events if events else (),
        pods=run.pods if pods else (),
        caches=run.caches if shows_caches else (),
        has_logs=shows_logs,
    )


async def _curves(request: Request, key: RunKey) -> dict[str, InstanceCurves]:
    return await read(source_of(request).curves, key)


def _pictures(found: dict[str, InstanceCurves]) -> list[tuple[str, str, list[StoredPicture]]]:
    """Returns (instance, tag, pictures in the order of their steps) of each series of pictures."""
    series: dict[tuple[str, str], list[StoredPicture]] = {}
    for name, each in found.items():
        for stored in each.history.pictures:
            series.setdefault((name, stored.at.tag), []).append(stored)
    return [(name, tag, pictures) for (name, tag), pictures in sorted(series.items())]


def _svg(points: str) -> str:
    """Returns a sparkline; an image of its own, so that its colour follows the browser's scheme by a style inside."""
    style = "polyline{stroke:#2563c9}@media(prefers-color-scheme:dark){polyline{stroke:#7aa7f0}}"
    line = f'<polyline points="{points}" fill="none" stroke-width="1.5" stroke-linejoin="round"/>' if points else ""
    size = 'width="96" height="22" viewBox="0 0 96 22"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{style}</style>{line}</svg>'
