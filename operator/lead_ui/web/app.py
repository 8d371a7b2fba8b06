"""The application: routes, who may ask for them, and how errors are shown."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from lead_ui.source import Source, SourceUnavailable
from lead_ui.web import caches, compare, runs, sign_in
from lead_ui.web.access import Access, AccessUnavailable, NotSignedIn
from lead_ui.web.headers import SecurityHeaders
from lead_ui.web.render import STATIC_FOLDER, page

Lifespan = Callable[[Starlette], AbstractAsyncContextManager[None]]


class StaticForEver(StaticFiles):
    """Static files, whose addresses hold a digest of their bytes."""

    def file_response(self, *args, **kwargs) -> Response:  # type: ignore[no-untyped-def]
        """Returns a file that browsers keep."""
        answer = super().file_response(*args, **kwargs)
        answer.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return answer


def create_app(source: Source, access: Access, hosts: Sequence[str], lifespan: Lifespan | None = None) -> Starlette:
    """Returns the application over a source; `hosts`: names by which it may be asked for, against DNS rebinding."""
    app = Starlette(
        routes=[
            Route("/", _home),
            Route("/healthz", _health),
            Route("/readyz", _ready),
            Mount("/static", StaticForEver(directory=STATIC_FOLDER)),
            Route("/login", sign_in.form, methods=["GET"]),
            Route("/login", sign_in.take_token, methods=["POST"]),
            Route("/logout", sign_in.sign_out, methods=["POST"]),
            Route("/runs", runs.table),
            Route("/runs/{namespace}/{name}", runs.curves),
            Route("/runs/{namespace}/{name}/spark.svg", runs.spark),
            Route("/runs/{namespace}/{name}/curves.json", runs.curve_data),
            Route("/runs/{namespace}/{name}/picture", runs.picture),
            Route("/runs/{namespace}/{name}/logs", runs.logs),
            Route("/runs/{namespace}/{name}/{tab:str}", runs.tab),
            Route("/compare", compare.compare),
            Route("/compare/curves.json", compare.curve_data),
            Route("/caches", caches.table),
            Route("/caches/{namespace}/{name}", caches.cache),
            Route("/space", caches.space),
        ],
        middleware=[
            Middleware(SecurityHeaders),
            Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False),
            Middleware(GZipMiddleware, minimum_size=1024),
        ],
        exception_handlers={
            HTTPException: _refused,
            NotSignedIn: _not_signed_in,
            AccessUnavailable: _unavailable,
            SourceUnavailable: _unavailable,
        },
        lifespan=lifespan,
    )
    app.state.source, app.state.access = source, access
    return app


async def _home(request: Request) -> Response:
    return RedirectResponse("/runs", HTTPStatus.SEE_OTHER)


async def _health(request: Request) -> Response:
    return PlainTextResponse("ok")


async def _ready(request: Request) -> Response:
    is_ready = request.app.state.source.is_ready
    return PlainTextResponse("ok" if is_ready else "not ok", 200 if is_ready else HTTPStatus.SERVICE_UNAVAILABLE)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = str(error.detail)
    if error.status_code == HTTPStatus.NOT_FOUND and error.detail == "Not Found":
        text = "There is no such page, or you may not see what it shows."
    return page(request, "error.html", None, error.status_code, title=HTTPStatus(error.status_code).phrase, text=text)


async def _not_signed_in(request: Request, error: Exception) -> Response:
    answer = sign_in.login_page(request, str(error), HTTPStatus.UNAUTHORIZED)
    answer.headers["WWW-Authenticate"] = 'Bearer realm="lead"'
    return answer


async def _unavailable(request: Request, error: Exception) -> Response:
    return page(request, "error.html", None, HTTPStatus.SERVICE_UNAVAILABLE, title="Not available now", text=str(error))
