"""Somebody who answers in the store's place, at the address of the local cluster's node."""

import contextlib
import ssl
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPSConnection
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from lead_testing.local_cluster import addresses
from lead_testing.loopback_server import LoopbackServer


@dataclass(frozen=True)
class Reply:
    """What an impostor answers to one request."""

    code: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class Request(BaseHTTPRequestHandler):
    """One request to an impostor, read whole."""

    protocol_version = "HTTP/1.1"
    answer: Callable[["Request"], Reply]

    @property
    def content(self) -> bytes:
        """The body; read once."""
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # whoever asked has gone
            super().handle()

    def _reply(self) -> None:
        self.close_connection = True
        reply = type(self).answer(self)
        self.send_response(reply.code)
        for name, value in reply.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _reply

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing: there are very many."""


def forwarded(request: Request, address: str, port: int) -> Reply:
    """Returns what the server at `address` answers to the same request, over TLS whose certificate is not looked at."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.closing(HTTPSConnection(address, port, timeout=60, context=context)) as line:
        line.putrequest(request.command, request.path, skip_host=True, skip_accept_encoding=True)
        for name, value in request.headers.items():
            line.putheader(name, value)
        line.endheaders(request.content)
        answer = line.getresponse()
        of_the_line = {"content-length", "transfer-encoding", "connection"}
        headers = [each for each in answer.getheaders() if each[0].lower() not in of_the_line]
        return Reply(answer.status, answer.read(), tuple(headers))


@contextlib.contextmanager
def impostor(answer: Callable[[Request], Reply], certificate: bytes, key: bytes) -> Iterator[int]:
    """Answers every request at the node's address in the store's place; yields the port.

    It shows the store's own certificate: whoever asks cannot tell it by its name.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        for name, content in (("tls.crt", certificate), ("tls.key", key)):
            Path(folder, name).write_bytes(content)
        context.load_cert_chain(f"{folder}/tls.crt", f"{folder}/tls.key")
    handler = type("Answer", (Request,), {"answer": staticmethod(answer)})
    with LoopbackServer(handler, tls=context, address=(addresses.NODE_ADDRESS, 0)) as server:
        yield server.port
