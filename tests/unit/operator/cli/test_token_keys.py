"""The sidecar that hands the API server's token keys to the embedded store."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import urllib3

from lead_operator.cli.token_keys import (
    CONFIGURATION_PATH,
    FRESH_S,
    KEYS_PATH,
    ApiServer,
    KeyRelay,
    KeysUnavailable,
    health_page,
    read_settings,
    serve,
)
from lead_operator.errors import SettingsError
from lead_testing.ports import dead_port

KEYS = {"keys": [{"kid": "one"}]}


class Clock:
    """A clock that a test moves on."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Upstream:
    """An API server: counts what it is asked, and is away when told so."""

    def __init__(self) -> None:
        self.asked, self.away, self.keys = list[str](), False, dict[str, Any](KEYS)

    def read(self, path: str) -> dict[str, Any]:
        self.asked.append(path)
        if self.away:
            raise KeysUnavailable("connection refused")
        if path == KEYS_PATH:
            return self.keys
        return {"issuer": "https://kubernetes.default.svc", "jwks_uri": "https://10.0.0.1:6443/openid/v1/jwks"}


@pytest.fixture
def upstream() -> Upstream:
    return Upstream()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def relay(upstream: Upstream, clock: Clock) -> KeyRelay:
    return KeyRelay(upstream.read, "http://127.0.0.1:9010", clock)


def test_the_documents_are_those_of_the_api_server_but_for_where_the_keys_are(relay: KeyRelay) -> None:
    configuration = json.loads(relay.page(CONFIGURATION_PATH) or b"")
    assert configuration == {
        "issuer": "https://kubernetes.default.svc",
        "jwks_uri": f"http://127.0.0.1:9010{KEYS_PATH}",
    }
    assert json.loads(relay.page(KEYS_PATH) or b"") == KEYS
    assert relay.page("/api/v1/secrets") is None


def test_a_flood_of_questions_reaches_the_api_server_once(relay: KeyRelay, upstream: Upstream) -> None:
    for _ in range(50):
        relay.page(KEYS_PATH)
    assert upstream.asked == [KEYS_PATH]


def test_new_keys_are_read_and_old_ones_served_on_while_the_api_server_is_away(
    relay: KeyRelay, upstream: Upstream, clock: Clock
) -> None:
    assert json.loads(relay.page(KEYS_PATH) or b"") == KEYS
    clock.now_s += FRESH_S
    upstream.keys = {"keys": [{"kid": "two"}]}
    assert json.loads(relay.page(KEYS_PATH) or b"") == upstream.keys
    clock.now_s += FRESH_S
    upstream.away = True
    assert json.loads(relay.page(KEYS_PATH) or b"") == upstream.keys
    assert relay.ready


def test_it_is_alive_at_once_and_ready_once_the_keys_are_known(relay: KeyRelay, upstream: Upstream) -> None:
    upstream.away = True
    assert health_page(relay, "/healthz") == b"ok"
    with pytest.raises(KeysUnavailable):
        health_page(relay, "/readyz")
    upstream.away = False
    assert health_page(relay, "/readyz") == b"ok"
    assert health_page(relay, "/metrics") is None


@contextmanager
def served(relay: KeyRelay) -> Iterator[str]:
    server = serve("127.0.0.1", 0, relay.page)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_it_answers_over_http(relay: KeyRelay, upstream: Upstream) -> None:
    upstream.away = True
    with served(relay) as url:
        assert urllib3.request("GET", f"{url}{KEYS_PATH}", retries=False).status == 503
        upstream.away = False
        answer = urllib3.request("GET", f"{url}{KEYS_PATH}", retries=False)
        assert (answer.status, answer.json()) == (200, KEYS)
        assert urllib3.request("GET", f"{url}/else", retries=False).status == 404


def test_an_api_server_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeysUnavailable, match="token"):
        ApiServer("https://127.0.0.1:1", tmp_path).read(KEYS_PATH)
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_text("no certificate")
    with (
        dead_port() as port,
        pytest.raises(KeysUnavailable, match=f"https://127.0.0.1:{port}{KEYS_PATH} cannot be read"),
    ):
        ApiServer(f"https://127.0.0.1:{port}", tmp_path).read(KEYS_PATH)


def test_the_settings_are_those_of_a_pod() -> None:
    environment = {
        "KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443",
        "LEAD_TOKEN_KEYS_CREDENTIALS_DIR": "/var/run/secrets/lead/api",
        "LEAD_TOKEN_KEYS_PORT": "9010", "LEAD_TOKEN_KEYS_HEALTH_PORT": "9011",
    }  # fmt: skip
    api_server, port, health_port = read_settings(environment)
    assert (api_server.url, port, health_port) == ("https://[fd00::1]:443", 9010, 9011)
    with pytest.raises(SettingsError, match="KUBERNETES_SERVICE_HOST"):
        read_settings({})
