"""`Cluster()` where nobody answers, or somebody else does: one sentence, of one class, in bounded time."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lead_client import Cluster, TrainingRun
from lead_client.errors import (
    AlreadyExists,
    ClientError,
    InvalidObject,
    NotAllowed,
    NotFound,
    Unavailable,
    WaitTimeout,
)
from lead_testing.loopback_server import LoopbackServer
from lead_testing.ports import free_port

STATUS = {"apiVersion": "v1", "kind": "Status", "status": "Failure"}
RUN = TrainingRun("night", recipe="lead", datasets=[{"cache_ref": {"name": "towns"}}])


class Answers(BaseHTTPRequestHandler):
    """Answers everything alike."""

    code: ClassVar[int] = 200
    body: ClassVar[bytes] = b""

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(self.code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    do_GET = do_PATCH = do_DELETE = do_POST = _answer

    def log_message(self, *arguments: Any) -> None:
        """Nobody reads it."""


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer(Answers) as running:
        yield running


def cluster(folder: Path, port: int, **more: Any) -> Cluster:
    document = {
        "apiVersion": "v1", "kind": "Config", "current-context": "here", "users": [{"name": "me", "user": {}}],
        "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me", "namespace": "team-a"}}],
    }  # fmt: skip
    (folder / "kubeconfig").write_text(json.dumps(document))
    return Cluster(kubeconfig=str(folder / "kubeconfig"), **more)


@pytest.mark.parametrize(
    ("code", "body", "kind", "sentence"),
    [
        (422, {**STATUS, "message": "spec.nodes: Invalid value: 0"}, InvalidObject, "spec.nodes: Invalid value: 0"),
        (403, {**STATUS, "message": "user may not"}, NotAllowed, "user may not"),
        (401, {**STATUS, "message": "Unauthorized"}, NotAllowed, "Unauthorized"),
        (404, {**STATUS, "message": "not found"}, NotFound, "not found"),
        (409, {**STATUS, "message": "conflict with kubectl"}, AlreadyExists, "conflict with kubectl"),
        (503, {**STATUS, "message": "starting"}, Unavailable, "starting"),
        (500, "<html>proxy</html>", Unavailable, "<html>proxy</html>"),
        (418, "[" * 5000, ClientError, "418"),
        (404, "[1]", NotFound, "404"),
        (400, '{"message": null}', InvalidObject, "400"),
    ],
)  # fmt: skip
def test_any_answer_ends_in_one_sentence(
    server: LoopbackServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    body: Any,
    kind: type[Exception],
    sentence: str,
) -> None:
    monkeypatch.setattr(Answers, "code", code)
    monkeypatch.setattr(Answers, "body", (body if isinstance(body, str) else json.dumps(body)).encode())
    here = cluster(tmp_path, server.port)
    for call in (lambda: here.submit(RUN), lambda: here.get("night"), here.list):
        with pytest.raises(kind) as caught:
            call()
        assert sentence in str(caught.value) and len(str(caught.value)) < 500


def test_nobody_answers(tmp_path: Path) -> None:
    here = cluster(tmp_path, free_port())
    with pytest.raises(Unavailable, match="the API server does not answer"):
        here.submit(RUN)
    assert here.namespace == "team-a"


def test_waiting_for_nobody_ends_at_its_deadline(
    tmp_path: Path, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"metadata": {"name": "night", "uid": "1", "resourceVersion": "1"}, "spec": {}}
    monkeypatch.setattr(Answers, "body", json.dumps(found).encode())
    run = cluster(tmp_path, server.port).get("night")
    monkeypatch.setattr(Answers, "code", 503)
    with pytest.raises(WaitTimeout, match=r"TrainingRun night has not ended within 1 s; it has no status yet"):
        run.wait(1)


def test_a_kubeconfig_that_cannot_be_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"found 'there', expected one of here"):
        cluster(tmp_path, 1, context="there")
    with pytest.raises(NotFound, match=r"no cluster: .*; set KUBECONFIG"):
        Cluster(kubeconfig=str(tmp_path / "absent"))
