"""`python -m lead_ui.cluster.serve`: the page of a cluster; started by the chart's Deployment."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette

from lead_operator.cli.logging_setup import set_up_logging
from lead_operator.errors import LeadOperatorError
from lead_operator.kube.client import KubeClient
from lead_ui.cluster.buckets import Buckets
from lead_ui.cluster.settings import UiSettings, read_ui_settings
from lead_ui.cluster.source import ClusterSource
from lead_ui.cluster.token_access import Reviews, TokenAccess
from lead_ui.cluster.watched import ClusterReader
from lead_ui.web.app import create_app


async def serve(settings: UiSettings) -> None:
    """Serves until the process is asked to stop."""
    client = await KubeClient.connect()
    reader = ClusterReader(client, settings.namespaces, asyncio.get_running_loop())

    @asynccontextmanager
    async def watching(app: Starlette) -> AsyncIterator[None]:
        reader.start()
        yield
        await reader.close()

    source = ClusterSource(reader, Buckets(settings), settings.release or "cluster")
    # Any name may lead here, through a port-forward or an Ingress: without a token each of them shows nothing.
    app = create_app(source, TokenAccess(Reviews(client), settings.proxy), ["*"], watching)
    config = uvicorn.Config(app, host=settings.host, port=settings.port, log_level="warning", server_header=False,
                            proxy_headers=False)  # fmt: skip
    await uvicorn.Server(config).serve()


def main() -> int:
    """Reads the environment and serves; returns the exit status."""
    try:
        settings = read_ui_settings(os.environ)
    except LeadOperatorError as error:
        print(f"lead ui: {error}", file=sys.stderr)
        return 1
    set_up_logging("INFO")
    asyncio.run(serve(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
