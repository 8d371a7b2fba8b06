"""A relay before MinIO's STS that shortens what credentials are said to live, and that can be away.

MinIO gives none for less than 15 minutes. A client believes `Expiration`, so it lives through several renewals, and
through an outage of several lives, in seconds.

    python3 -m lead_testing.sts_relay HOST:PORT LIFE_S CA_FILE PORT

is one of a store with TLS, in a pod of its own: away where there is none of it.
"""

import re
import sys
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler

import urllib3

from lead_testing.loopback_server import LoopbackServer

_EXPIRATION = re.compile(rb"<Expiration>[^<]*</Expiration>")


class StsRelay(LoopbackServer):
    """Listens on loopback; `away` says whether requests are answered by 503, the counts how many there were."""

    def __init__(
        self, minio: str, life_s: float, *, ca_file: str = "", address: tuple[str, int] = ("127.0.0.1", 0)
    ) -> None:
        """`minio`: host and port; `ca_file`: the authority of its certificate, "" where it has no TLS."""
        self.away = False
        self.given = self.refused_while_away = 0
        self.life_s = life_s
        self._minio = f"https://{minio}" if ca_file else f"http://{minio}"
        self._pool = urllib3.PoolManager(ca_certs=ca_file or None)
        super().__init__(_handler(self), address=address)

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
        try:
            found = self._pool.request("POST", f"{self._minio}{path}", body=form, headers=kind, retries=False)
        except urllib3.exceptions.HTTPError:  # it restarts
            return 503, b""
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


def main() -> None:
    """Relays until the process is ended."""
    minio, life_s, ca_file, port = sys.argv[1:]
    with StsRelay(minio, float(life_s), ca_file=ca_file, address=("", int(port))) as relay:
        relay.join()


if __name__ == "__main__":
    main()
