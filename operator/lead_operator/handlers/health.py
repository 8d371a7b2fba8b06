"""The operator's three pages: /healthz (is it alive), /readyz (has it seen the cluster), /metrics.

Started by `handlers.startup` before anything else, so that kubelet gets an answer while the API server is away. The
kubelet's probes return no details; the endpoints with namespaces, reasons and numbers need an authorised token, over
TLS, unless the administrator opens them.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from pathlib import Path

from aiohttp import web

from lead_operator import metrics
from lead_operator.controllers.manager import Manager
from lead_operator.errors import SettingsError
from lead_operator.kube.client import KubeClient
from lead_operator.kube.page_access import PageAccess
from lead_operator.settings import OPEN_PAGES, Settings

_REMEDIES = {
    HTTPStatus.UNAUTHORIZED: "send a ServiceAccount's token: Authorization: Bearer …",
    HTTPStatus.FORBIDDEN: "this account may not get /metrics; the chart's operator.metrics.readers names others",
    HTTPStatus.SERVICE_UNAVAILABLE: "the API server, which knows who may, does not answer",
}


class Servers:
    """The listening servers; `cleanup` ends them."""

    def __init__(self, runners: list[web.AppRunner]) -> None:
        self._runners = runners

    async def cleanup(self) -> None:
        """Stops to listen."""
        for runner in self._runners:
            await runner.cleanup()


async def start_servers(manager: Manager, client: KubeClient, settings: Settings) -> Servers:
    """Serves the endpoints on all addresses of the pod, as configured."""
    if settings.metrics_authentication == OPEN_PAGES:
        return Servers([await start_health_server(manager, settings.health_port)])
    tls, access = _tls(settings.metrics_certificates_dir), PageAccess(client)

    @web.middleware
    async def only_readers(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        # One right for all pages: Kubernetes' default roles let every account get /healthz and /readyz.
        verdict = await access.judge(request.headers.get("Authorization", ""), "/metrics")
        if verdict is HTTPStatus.OK:
            return await handler(request)
        return web.Response(text=_REMEDIES[verdict], status=verdict)

    protected = web.Application(middlewares=[only_readers])
    protected.add_routes(_pages(manager))
    return Servers(
        [
            await _listen(_brief(manager), settings.health_port, None),
            await _listen(protected, settings.metrics_port, tls),
        ]
    )


async def start_health_server(manager: Manager, port: int) -> web.AppRunner:
    """Serves the whole pages to everybody."""
    application = web.Application()
    application.add_routes(_pages(manager))
    return await _listen(application, port, None)


def _pages(manager: Manager) -> list[web.RouteDef]:
    async def healthz(_: web.Request) -> web.Response:
        verdict = manager.watchdog.verdict()
        return web.Response(text=verdict or "ok", status=503 if verdict else 200)

    async def readyz(_: web.Request) -> web.Response:
        missing = [informer.name for informer in manager.informers.awaited if not informer.synced.is_set()]
        refused = (f"; not served: {name or '*'}: {why}" for name, why in manager.informers.refused.items())
        text = f"not listed yet: {', '.join(missing)}" if missing else "ok"
        return web.Response(text=text + "".join(refused), status=503 if missing else 200)

    async def show_metrics(_: web.Request) -> web.Response:
        manager.watchdog.verdict()
        manager.refresh_metrics()
        body = await asyncio.to_thread(metrics.exposition)  # a thousand runs take some tenths of a second
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4"})

    return [web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", show_metrics)]


def _brief(manager: Manager) -> web.Application:
    """The kubelet's probe endpoints, without details."""
    application = web.Application()
    whole = {page.path: page.handler for page in _pages(manager)}

    def plain(path: str) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def page(request: web.Request) -> web.Response:
            status = (await whole[path](request)).status
            return web.Response(text="ok" if status == HTTPStatus.OK else "not ok", status=status)

        return page

    application.add_routes([web.get(path, plain(path)) for path in ("/healthz", "/readyz")])
    return application


def _tls(folder: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    except OSError as error:  # an SSLError is one too
        raise SettingsError(
            f"LEAD_METRICS_CERTIFICATES_DIR names {folder}, whose tls.crt and tls.key cannot be used: {error}"
        ) from error
    return context


async def _listen(application: web.Application, port: int, tls: ssl.SSLContext | None) -> web.AppRunner:
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, port=port, ssl_context=tls).start()
    return runner
