"""A relay before MinIO's STS that shortens what credentials are said to live, and that can be away.

MinIO gives none for less than 15 minutes. A client believes `Expiration`, so it lives through several renewals, and
through an outage of several lives, in seconds.
"""

import re
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler

import urllib3

from lead_testing.loopback_server import LoopbackServer

_EXPIRATION = re.compile(rb"<Expiration>[^<]*</Expiration>")


class StsRelay(LoopbackServer):
    """Listens on loopback; `away` says whether requests are answered by 503, the counts how many there were."""

    def __init__(self, minio: str, life_s: float) -> None:
        """`minio`: host and port."""
        self.away = False
        self.given = self.refused_while_away = 0
        self.life_s = life_s
        self._minio = minio
        super().__init__(_handler(self))

    @property
    def url(self) -> str:
        """Where it is asked."""
        return f"http://{self.endpoint}"

    def answer(self, path: str, form: bytes) -> tuple[int, bytes]:
        """Returns status and body of one exchange."""
        if self.away:
            self.refused_while_away += 1
            return 503, b""
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        found = urllib3.request("POST", f"http://{self._minio}{path}", body=form, headers=kind)
        ends = (datetime.now(UTC) + timedelta(seconds=self.life_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.given += found.status == 200
        return found.status, _EXPIRATION.sub(f"<Expiration>{ends}</Expiration>".encode(), found.data)


def _handler(relay: StsRelay) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Logs nothing."""

        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, body = relay.answer(self.path, form)
            self.send_response(status)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler
