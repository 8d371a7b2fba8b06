"""The operator's three pages: /healthz (is it alive), /readyz (has it seen the cluster), /metrics.

Started by `handlers.startup` before anything else, so that kubelet gets an answer while the API server is away.
"""

from aiohttp import web

from lead_operator.cluster import metrics
from lead_operator.cluster.operator import Operator


async def start_health_server(operator: Operator, port: int) -> web.AppRunner:
    """Serves the pages on all addresses of the pod; returns the runner to clean up at the end."""

    async def healthz(_: web.Request) -> web.Response:
        verdict = operator.watchdog.verdict()
        return web.Response(text=verdict or "ok", status=503 if verdict else 200)

    async def readyz(_: web.Request) -> web.Response:
        missing = [informer.name for informer in operator.informers.awaited if not informer.synced.is_set()]
        refused = (f"; not served: {name or '*'}: {why}" for name, why in operator.informers.refused.items())
        text = f"not listed yet: {', '.join(missing)}" if missing else "ok"
        return web.Response(text=text + "".join(refused), status=503 if missing else 200)

    async def show_metrics(_: web.Request) -> web.Response:
        operator.watchdog.verdict()
        operator.refresh_metrics()
        return web.Response(body=metrics.exposition(), headers={"Content-Type": "text/plain; version=0.0.4"})

    application = web.Application()
    application.add_routes(
        [web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", show_metrics)]
    )
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    return runner
