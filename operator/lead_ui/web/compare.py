"""Up to eight runs side by side: curves, metrics, and the keys of their configs that differ."""

import asyncio
from http import HTTPStatus

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from lead_ui.assembled import config_keys, flattened
from lead_ui.model import Run, RunKey
from lead_ui.web.access import RUNS, Viewer
from lead_ui.web.asked import axis_of, permitted, read, source_of, span_of, viewer_of, visible
from lead_ui.web.curve_answers import RunCurves, answer, sections, seed_group, tags_of
from lead_ui.web.render import page

MOST_RUNS = 8


async def compare(request: Request) -> Response:
    """Shows the runs that the query names, and which others there are."""
    viewer = await viewer_of(request)
    runs, curves = await _asked(request, viewer)
    rows = await run_in_threadpool(source_of(request).runs, await visible(request, viewer, RUNS))
    configs = [flattened(run.config) for run in runs]
    return page(
        request,
        "compare.html",
        viewer,
        title="Compare",
        runs=runs,
        most=MOST_RUNS,
        choices=sorted(rows, key=lambda row: (row.created, str(row.key)), reverse=True)[:200],
        sections=sections(tags_of(curves)),
        differing={key: [config.get(key, "") for config in configs] for key in config_keys(configs)},
        same=len(set().union(*configs)) - len(config_keys(configs)) if configs else 0,
        metrics=_metrics(runs),
        has_seeds=any(len(run.instances) > 1 for run in runs) or len({each.group for each in curves}) < len(curves),
    )


async def curve_data(request: Request) -> Response:
    """Answers with the lines of some tags of all runs."""
    viewer = await viewer_of(request)
    _, curves = await _asked(request, viewer)
    seeds, tags = request.query_params.get("seeds") == "mean", request.query_params.getlist("tag")
    charts = await run_in_threadpool(answer, curves, tags, axis_of(request), span_of(request), seeds=seeds)
    return JSONResponse({"charts": charts})


async def _asked(request: Request, viewer: Viewer) -> tuple[list[Run], list[RunCurves]]:
    names = list(dict.fromkeys(request.query_params.getlist("run")))
    if len(names) > MOST_RUNS:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"{len(names)} runs are named; {MOST_RUNS} fit side by side.")
    keys = [RunKey(*name.split("/", 1)) if "/" in name else RunKey("", name) for name in names]
    for key in keys:
        await permitted(viewer, RUNS, key)
    source = source_of(request)
    runs = await asyncio.gather(*(read(source.run, key) for key in keys))
    found = await asyncio.gather(*(read(source.curves, key) for key in keys))
    alike: dict[str, str] = {}
    several = len({key.namespace for key in keys}) > 1
    curves = list[RunCurves]()
    for run, each in zip(runs, found, strict=True):
        label = str(run.row.key) if several else run.row.key.name
        group = seed_group(run)
        curves.append(RunCurves(label, each, alike.setdefault(group, label) if group else label))
    return list(runs), curves


def _metrics(runs: list[Run]) -> dict[str, list[float | str]]:
    """Returns the last reported metrics of each run's newest stage, by name."""
    reported = []
    for run in runs:
        last = next((each for each in reversed(run.instances) if each.step or each.metrics), None)
        loss = {"loss": last.loss} if last is not None and last.loss is not None else {}
        reported.append({**loss, **(last.metrics if last else {})})
    names = list(dict.fromkeys(name for each in reported for name in each))
    return {name: [each.get(name, "") for each in reported] for name in names}
