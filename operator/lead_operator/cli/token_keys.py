"""Relays the API server's token keys to the embedded store: `lead-operator token-keys`, a sidecar of MinIO.

MinIO checks ServiceAccount tokens by an OpenID provider's two documents. The API server publishes them, to whoever
shows a ServiceAccount token; MinIO shows none, and need not reach the API server at all. So this process reads them
with its own token and serves them on the loopback of the pod. Both documents are public: no secret passes through.

What was read last is served on while the API server is away, so that a restart of MinIO does not depend on it.
"""

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import urllib3

from lead_operator.cli.logging_setup import set_up_logging
from lead_operator.errors import LeadOperatorError, SettingsError

CONFIGURATION_PATH = "/.well-known/openid-configuration"
KEYS_PATH = "/openid/v1/jwks"
FRESH_S = 2.0  # MinIO asks again at every token that it cannot check: a flood of those must not reach the API server
TIMEOUT_S = 5.0
MAX_BYTES = 1024 * 1024
_log = logging.getLogger(__name__)


class KeysUnavailable(LeadOperatorError):
    """The API server gave no usable document; the message names the address and what it answered."""


@dataclass(frozen=True)
class ApiServer:
    """Where the documents are, and the folder with `token` and `ca.crt`, which are read again at every call."""

    url: str
    credentials_dir: Path

    def read(self, path: str) -> dict[str, Any]:
        """Returns a JSON document; raises KeysUnavailable."""
        where = f"{self.url}{path}"
        try:
            token = (self.credentials_dir / "token").read_text().strip()
            ca_certs = str(self.credentials_dir / "ca.crt")
            with urllib3.PoolManager(retries=False, cert_reqs="CERT_REQUIRED", ca_certs=ca_certs) as pool:
                headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, application/jwk-set+json"}
                answer = pool.request(
                    "GET", where, headers=headers, timeout=TIMEOUT_S, redirect=False, preload_content=False
                )
                body = answer.read(MAX_BYTES)
                answer.release_conn()
            document = json.loads(body) if answer.status == 200 else None
        except (OSError, ValueError, urllib3.exceptions.HTTPError) as error:
            raise KeysUnavailable(f"{where} cannot be read: {error}") from error
        if not isinstance(document, dict):
            raise KeysUnavailable(
                f"{where} answered {answer.status}, expected a JSON object; every ServiceAccount may read it by the "
                "ClusterRole system:service-account-issuer-discovery"
            )
        return document


class KeyRelay:
    """The two documents, at most FRESH_S old while the API server answers."""

    def __init__(
        self, read: Callable[[str], dict[str, Any]], own_url: str, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._now = now
        self._read, self._own_url = read, own_url
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, bytes]] = {}

    @property
    def ready(self) -> bool:
        """Whether the keys are known."""
        try:
            return bool(self.page(KEYS_PATH))
        except KeysUnavailable as error:
            _log.warning("no keys of tokens yet: %s", error)
            return False

    def page(self, path: str) -> bytes | None:
        """Returns a document, None where there is none of that path; raises KeysUnavailable where it was never read."""
        if path not in (CONFIGURATION_PATH, KEYS_PATH):
            return None
        with self._lock:
            read_at, body = self._known.get(path, (float("-inf"), b""))
            if self._now() - read_at < FRESH_S:
                return body
            try:
                document = self._read(path)
            except KeysUnavailable as error:
                if not body:
                    raise
                _log.warning("the keys of tokens that were read before are served on: %s", error)
            else:
                if path == CONFIGURATION_PATH:
                    document = {**document, "jwks_uri": f"{self._own_url}{KEYS_PATH}"}
                body = json.dumps(document).encode()
            self._known[path] = (self._now(), body)
            return body


def main() -> int:
    """Serves until it is killed; raises SettingsError for a wrong environment."""
    set_up_logging("INFO")
    api_server, port, health_port = read_settings(os.environ)
    relay = KeyRelay(api_server.read, f"http://127.0.0.1:{port}")
    health = serve("", health_port, lambda path: health_page(relay, path))
    threading.Thread(target=health.serve_forever, daemon=True).start()
    _log.info("serving the token keys of %s on 127.0.0.1:%d", api_server.url, port)
    serve("127.0.0.1", port, relay.page).serve_forever()
    return 0


def read_settings(environment: Mapping[str, str]) -> tuple[ApiServer, int, int]:
    """Returns the API server, and the ports of the documents and of the health page; raises SettingsError."""

    def variable(name: str) -> str:
        if not environment.get(name):
            raise SettingsError(f"environment variable {name} is not set; it is in every pod of the embedded store")
        return environment[name]

    host, port = variable("KUBERNETES_SERVICE_HOST"), variable("KUBERNETES_SERVICE_PORT")
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    folder = Path(variable("LEAD_TOKEN_KEYS_CREDENTIALS_DIR"))
    ports = [int(variable(name)) for name in ("LEAD_TOKEN_KEYS_PORT", "LEAD_TOKEN_KEYS_HEALTH_PORT")]
    return ApiServer(f"https://{authority}", folder), ports[0], ports[1]


def health_page(relay: KeyRelay, path: str) -> bytes | None:
    """Returns what probes ask for: /healthz always, /readyz once the keys are known."""
    if path == "/readyz" and not relay.ready:
        raise KeysUnavailable("the keys are not known yet")
    return b"ok" if path in ("/healthz", "/readyz") else None


def serve(host: str, port: int, page: Callable[[str], bytes | None]) -> ThreadingHTTPServer:
    """Returns a server of pages that is bound, not yet serving; 503 where a page raises KeysUnavailable."""

    class Pages(BaseHTTPRequestHandler):
        timeout = TIMEOUT_S * 2  # of a silent client

        def do_GET(self) -> None:
            try:
                status, body = 200, page(self.path)
            except KeysUnavailable as error:
                status, body = 503, str(error).encode()
            if body is None:
                status, body = 404, b"not found"
            self.send_response(status)
            self.send_header("Content-Type", "application/json" if body.startswith(b"{") else "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Writes nothing: probes come every few seconds."""

    server = ThreadingHTTPServer((host, port), Pages)
    server.daemon_threads = True
    return server
