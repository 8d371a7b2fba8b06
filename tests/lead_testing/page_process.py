"""The page of a cluster as a child process of a test, and its visitors: what each of them gets for a path."""

import http.client
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from lead_testing.local_cluster.api_server import no_proxy_environment
from lead_testing.minio_server import ROOT_PASSWORD, ROOT_USER
from lead_testing.operator_process import wait_for
from lead_testing.ports import free_port

KEPT_S = 1.0  # for so long the page keeps what the API server has answered about rights; by default half a minute
_PROGRAM = f"""
import lead_ui.cluster.token_access as access
access.KEPT_S = {KEPT_S}
from lead_ui.cluster.serve import main
raise SystemExit(main())
"""


@dataclass(frozen=True)
class Answer:
    """One answer of the page."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace")


@dataclass
class PageProcess:
    """The page over some namespaces of an API server and one bucket."""

    kubeconfig: Path
    folder: Path
    namespaces: tuple[str, ...]
    endpoint: str
    bucket: str
    environment: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    _process: "subprocess.Popen[bytes] | None" = None

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        profile = {"endpoint": self.endpoint, "bucket": self.bucket, "secure": False, "secretName": "lead-s3"}
        (self.folder / "profiles.json").write_text(json.dumps({"default": profile}))
        keys = self.folder / "keys/default"
        keys.mkdir(parents=True, exist_ok=True)
        (keys / "access-key").write_text(ROOT_USER)
        (keys / "secret-key").write_text(ROOT_PASSWORD)
        environment = {
            **no_proxy_environment(),
            "KUBECONFIG": os.fspath(self.kubeconfig),
            "LEAD_STORAGE_PROFILES_FILE": os.fspath(self.folder / "profiles.json"),
            "LEAD_UI_CREDENTIALS_DIR": os.fspath(self.folder / "keys"),
            "LEAD_RUN_NAMESPACES": ",".join(self.namespaces),
            "LEAD_UI_HOST": "127.0.0.1",
            "LEAD_UI_PORT": str(self.port),
            **self.environment,
        }
        with self.log.open("wb") as log:
            self._process = subprocess.Popen([sys.executable, "-c", _PROGRAM], env=environment, stdout=log, stderr=log)
        wait_for("the page to be ready", self._is_ready)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(timeout=30)
            finally:
                self._process.kill()

    @property
    def log(self) -> Path:
        """What the process wrote."""
        return self.folder / "page.log"

    def get(self, path: str, token: str = "", *, method: str = "GET", body: str = "", **headers: str) -> Answer:
        """Returns the answer to one request, which follows no redirect; `headers` with underscores for dashes."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            sent["Authorization"] = f"Bearer {token}"
        if body:
            sent.setdefault("Content-Type", "application/x-www-form-urlencoded")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body.encode() if body else None, sent)
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def _is_ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"the page has ended:\n{self.log.read_text()[-4000:]}")
        try:
            return self.get("/readyz").status == 200
        except OSError:
            return False
