"""A loopback proxy between an S3 client and its server that spoils chosen calls, as networks and servers do.

MinIO checks a signature against the Host header that it receives, so the proxy passes the client's unchanged.

    with StoreProxy(server.endpoint) as proxy:
        proxy.plan("drop-answer", method="PUT", times=1)

    StoreProxy(server.endpoint, latency_s=0.01, bytes_per_s=100e6)    a far store, for benchmarks
"""

import http.client
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Literal

from lead_testing.loopback_server import LoopbackServer

Fault = Literal[
    "drop-before", "drop-answer", "503", "503-retry-after", "429", "403-expired", "507", "cut-body", "short-body",
    "wrong-length", "flip-byte", "slow", "trickle", "stall", "redirect", "bare-404", "404-page", "404-html", "499",
    "520", "200-html", "404-no-such-key",
]  # fmt: skip
ERRORS = {
    "503": (503, "SlowDown", "Please reduce your request rate."),
    "503-retry-after": (503, "SlowDown", "Please reduce your request rate."),
    "429": (429, "TooManyRequests", "Please reduce your request rate."),
    "403-expired": (403, "ExpiredToken", "The provided token has expired."),
    "404-no-such-key": (404, "NoSuchKey", "The specified key does not exist."),
    "499": (499, "ClientDisconnected", "Client disconnected before response was ready"),
    "507": (507, "XMinioStorageFull", "Storage backend has reached its minimum free drive threshold."),
}
# What gateways answer in the place of a store that is away: status, Content-Type, body.
GATEWAY = {
    "bare-404": (404, "", b""),
    "404-page": (404, "text/plain; charset=utf-8", b"404 page not found\n"),
    "404-html": (404, "text/html", b"<html><head><title>404 Not Found</title></head><body>nginx</body></html>\n"),
    "520": (520, "", b""),
    "200-html": (200, "text/html", b"<html><head><title>Welcome to nginx!</title></head></html>\n"),
}
TRICKLE_BYTES_PER_S = 1024
LONGEST_STALL_S = 60.0
LINK_PIECE_BYTES = 256 * 1024
SLOW_PIECE_BYTES = 64 * 1024
SLOW_PAUSE_S = 0.05


@dataclass
class Plan:
    """Which calls are spoiled, how, and how often."""

    fault: Fault
    matches: Callable[[str, str], bool]  # method, path with query
    times: int


@dataclass
class Seen:
    """What passed: (method, path with query, fault or empty)."""

    calls: list[tuple[str, str, str]] = field(default_factory=list)

    def count(self, method: str, part: str = "", fault: str | None = None) -> int:
        """Counts calls by method, a part of the path, and the fault they met."""
        return sum(1 for m, path, met in self.calls if m == method and part in path and (fault is None or met == fault))


class StoreProxy(LoopbackServer):
    """One proxy; plans may be added while it runs."""

    def __init__(
        self,
        upstream: str,
        *,
        latency_s: float = 0.0,
        bytes_per_s: float = 0.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Delays every answer by `latency_s`, and lets all answers together have `bytes_per_s` (0: no limit).

        With `tls` its clients speak HTTPS; the upstream never does.
        """
        self.seen = Seen()
        self.release = threading.Event()  # ends stalls
        self.latency_s = latency_s
        self.expired_keys: set[str] = set()  # access keys whose requests are refused with ExpiredToken
        self._bytes_per_s, self._link_free_at = bytes_per_s, 0.0
        self.sent_bytes = 0
        self._plans: list[Plan] = []
        self._lock = threading.Lock()
        super().__init__(_handler(self, upstream), tls=tls)

    def plan(self, fault: Fault, *, method: str = "", part: str = "", times: int = 1) -> None:
        """Spoils the next `times` calls of that method (any, if empty) whose path with query holds `part`."""
        self.plan_where(fault, lambda m, path: method in ("", m) and part in path, times=times)

    def plan_where(self, fault: Fault, matches: Callable[[str, str], bool], *, times: int = 10**9) -> None:
        """Spoils the next `times` calls whose method and path `matches` accepts."""
        with self._lock:
            self._plans.append(Plan(fault, matches, times))

    @contextmanager
    def stalled(self) -> Iterator[threading.Event]:
        """Lets calls with the fault `stall` wait until the body of the `with` ends."""
        self.release.clear()
        try:
            yield self.release
        finally:
            self.release.set()

    def pass_bytes(self, count: int) -> None:
        """Waits until the link has carried `count` bytes more."""
        with self._lock:
            self.sent_bytes += count
            if not self._bytes_per_s:
                return
            self._link_free_at = max(self._link_free_at, time.monotonic()) + count / self._bytes_per_s
            pause_s = self._link_free_at - time.monotonic()
        time.sleep(max(0.0, pause_s))

    def clear(self) -> None:
        """Forgets every plan."""
        with self._lock:
            self._plans.clear()

    def fault_for(self, method: str, path: str) -> str:
        """Takes the fault that this call meets, empty for none, and records the call."""
        with self._lock:
            for plan in self._plans:
                if plan.times > 0 and plan.matches(method, path):
                    plan.times -= 1
                    self.seen.calls.append((method, path, plan.fault))
                    return plan.fault
            self.seen.calls.append((method, path, ""))
            return ""


def _handler(proxy: StoreProxy, upstream: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing: the test reads `proxy.seen`."""

        def handle_call(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fault = proxy.fault_for(self.command, self.path)
            if any(f"Credential={key}/" in self.headers.get("Authorization", "") for key in proxy.expired_keys):
                fault = "403-expired"
            time.sleep(proxy.latency_s)
            if fault == "drop-before":
                self._hang_up()
            elif fault in ERRORS:
                self._refuse(*ERRORS[fault], retry_after=fault == "503-retry-after")
            elif fault in GATEWAY:
                self._answer_as_gateway(*GATEWAY[fault])
            elif fault == "redirect":
                self.send_response(307)
                self.send_header("Location", "http://169.254.169.254/latest/meta-data/")
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                self._forward(body, fault)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_call

        def _forward(self, body: bytes, fault: str) -> None:
            connection = http.client.HTTPConnection(upstream, timeout=60)
            try:
                connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    connection.putheader(name, value)
                connection.endheaders(body)
                answer = connection.getresponse()
                payload = answer.read()
            except OSError:  # the server is away: so is the proxy
                self._hang_up()
                return
            finally:
                connection.close()
            if fault == "drop-answer":
                self._hang_up()
                return
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "connection", "content-length", "date", "server"):
                    self.send_header(name, value)
            if fault == "stall":
                proxy.release.wait(LONGEST_STALL_S)
            payload = payload[: len(payload) // 2] if fault == "short-body" else payload
            said = len(payload) + (100 if fault == "wrong-length" else 0)
            length = answer.getheader("Content-Length") if self.command == "HEAD" else str(said)
            self.send_header("Content-Length", length or "0")
            self.end_headers()
            if self.command != "HEAD":
                self._send_body(payload, fault)

        def _send_body(self, payload: bytes, fault: str) -> None:
            if fault == "cut-body":
                half = payload[: len(payload) // 2]
                proxy.pass_bytes(len(half))
                self.wfile.write(half)
                self._hang_up()
            elif fault == "wrong-length":
                self.wfile.write(payload)
                self._hang_up()
            elif fault == "trickle":
                for start in range(0, len(payload), TRICKLE_BYTES_PER_S // 10):
                    self.wfile.write(payload[start : start + TRICKLE_BYTES_PER_S // 10])
                    self.wfile.flush()
                    time.sleep(0.1)
            elif fault == "flip-byte" and payload:
                self.wfile.write(payload[:-1] + bytes([payload[-1] ^ 1]))
            elif fault == "slow":
                for start in range(0, len(payload), SLOW_PIECE_BYTES):
                    self.wfile.write(payload[start : start + SLOW_PIECE_BYTES])
                    self.wfile.flush()
                    time.sleep(SLOW_PAUSE_S)
            else:
                for start in range(0, len(payload), LINK_PIECE_BYTES):
                    piece = payload[start : start + LINK_PIECE_BYTES]
                    proxy.pass_bytes(len(piece))
                    self.wfile.write(piece)

        def _refuse(self, status: int, code: str, message: str, *, retry_after: bool) -> None:
            payload = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
            self.send_response(status)
            if retry_after:
                self.send_header("Retry-After", "1")
            self.send_header("Content-Length", "0" if self.command == "HEAD" else str(len(payload)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(payload)

        def _answer_as_gateway(self, status: int, media_type: str, page: bytes) -> None:
            self.send_response(status)
            if media_type:
                self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(page)

        def _hang_up(self) -> None:
            self.wfile.flush()
            self.close_connection = True

    return Handler
