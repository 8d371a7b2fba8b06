"""Templates with automatic escaping, and how numbers, sizes and times are written on a page."""

import hashlib
import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse

from lead_operator.decisions.formatting import format_duration, format_number, format_size, format_time, parse_time
from lead_ui.model import RunKey
from lead_ui.web.access import Viewer

FOLDER = Path(__file__).parent.parent
STATIC_FOLDER = FOLDER / "static"


def page(request: Request, template: str, viewer: Viewer | None, status: int = 200, **values: Any) -> HTMLResponse:
    """Returns a page, or the part of it that htmx asked for: templates decide by `partial`."""
    shared = {
        "source": request.app.state.source,
        "signs_in": request.app.state.access.signs_in,
        "viewer": viewer,
        "path": request.url.path,
        "query": str(request.query_params),
        "partial": request.headers.get("hx-request") == "true" and "hx-boosted" not in request.headers,
    }
    return HTMLResponse(environment().get_template(template).render(shared | values), status)


@cache
def environment() -> Environment:
    """Returns the one environment of templates: everything is escaped, and a name that is not given is an error."""
    found = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "size": lambda value: format_size(value) if value is not None else "",
        "number": lambda value: format_number(value) if isinstance(value, int | float) else str(value),
        "duration": lambda value: format_duration(value) if value is not None else "",
        "ago": ago,
        "moment": moment,
        "as_yaml": as_yaml,
        "value": shown_value,
        "slug": lambda text: quote(str(text), safe=""),
        "run_path": run_path,
        "cache_path": lambda key: f"/caches/{quote(key.namespace, safe='')}/{quote(key.name, safe='')}",
    }
    found.globals |= {"asset": asset}
    return found


def run_path(key: RunKey) -> str:
    """Returns the path of a run's page."""
    return f"/runs/{quote(key.namespace, safe='')}/{quote(key.name, safe='')}"


@cache
def asset(name: str) -> str:
    """Returns the address of a static file, with a digest of its bytes: browsers keep it until they change."""
    return f"/static/{name}?{hashlib.sha256((STATIC_FOLDER / name).read_bytes()).hexdigest()[:10]}"


def ago(text: object) -> Markup:
    """Returns how long ago an RFC 3339 time, or seconds since 1970, was, as an element that holds the time itself."""
    if isinstance(text, int | float):
        text = format_time(datetime.fromtimestamp(text, UTC))
    found = parse_time(text)
    if found is None:
        return Markup("")
    age = max(0.0, time.time() - found.timestamp())
    stamp = format_time(found)
    return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(stamp, format_duration(age))


def moment(seconds: float) -> str:
    """Returns a time as RFC 3339."""
    return format_time(datetime.fromtimestamp(seconds, UTC))


def as_yaml(document: Mapping[str, object]) -> str:
    """Returns a document as YAML."""
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110) if document else ""


def shown_value(value: object) -> str:
    """Returns a value of a config as it is written in YAML, on one line."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)
