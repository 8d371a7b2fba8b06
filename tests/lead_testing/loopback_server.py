"""An HTTP server for the length of a `with`, on loopback unless told otherwise: the base of a store's neighbours.

Used by `sts_relay`, `store_proxy`, `token_issuer` and the live campaign, which bring the handler.
"""

import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self


class LoopbackServer:
    """Listens from the beginning, answers between entering and leaving."""

    def __init__(
        self,
        handler: type[BaseHTTPRequestHandler],
        *,
        tls: ssl.SSLContext | None = None,
        address: tuple[str, int] = ("127.0.0.1", 0),
    ) -> None:
        """`address`: where it listens; host "" is every address of the machine, port 0 a free one."""
        self._server = ThreadingHTTPServer(address, handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def join(self) -> None:
        """Waits until it is closed by another thread."""
        self._thread.join()

    @property
    def endpoint(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])
