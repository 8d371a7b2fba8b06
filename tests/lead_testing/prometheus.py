"""A real Prometheus on a loopback port, and promtool: of Debian's package `prometheus`, on PATH or installed once."""

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import yaml

from lead_testing.local_cluster.errors import CannotRun
from lead_testing.local_cluster.home import Home
from lead_testing.local_cluster.packages import PROMETHEUS_PACKAGES, ensure_packages
from lead_testing.ports import free_port

START_DEADLINE_S = 120.0
POLL_S = 0.1


def promtool() -> str:
    """Returns promtool; skips the test where it can neither be found nor installed."""
    return _program("promtool")


def _program(name: str) -> str:
    if not shutil.which(name):
        try:
            ensure_packages(Home.from_environment(), PROMETHEUS_PACKAGES)
        except CannotRun as reason:
            pytest.skip(f"{name} is neither on PATH nor can it be installed: {reason}")
    return shutil.which(name) or name


class Prometheus:
    """One server that scrapes the targets that it is given each second, with a folder of its own."""

    def __init__(self, folder: Path, scrape: dict[str, Any], rule_files: tuple[Path, ...] = ()) -> None:
        """`scrape`: the one entry of scrape_configs."""
        self._folder, self._port = folder, free_port()
        folder.mkdir(parents=True, exist_ok=True)
        document = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(path) for path in rule_files],
            "scrape_configs": [scrape],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(document))

    def __enter__(self) -> Self:
        words = [
            _program("prometheus"), f"--config.file={self._folder}/prometheus.yml",
            f"--web.listen-address=127.0.0.1:{self._port}", f"--storage.tsdb.path={self._folder}/data",
        ]  # fmt: skip
        log = (self._folder / "prometheus.log").open("wb")
        self._process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT)
        log.close()
        deadline = time.monotonic() + START_DEADLINE_S
        while not self._is_ready():
            assert self._process.poll() is None and time.monotonic() < deadline, self._log()
            time.sleep(POLL_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(timeout=60)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Returns the series of an instant query now; raises AssertionError with Prometheus' message."""
        return self._ask("query", {"query": expression})

    def query_range(self, expression: str, *, last_s: float, step_s: float = 1.0) -> list[dict[str, Any]]:
        """Returns the series of the last seconds."""
        now = time.time()
        return self._ask(
            "query_range", {"query": expression, "start": str(now - last_s), "end": str(now), "step": str(step_s)}
        )

    def get(self, path: str) -> Any:
        """Returns the `data` of an endpoint of the HTTP API."""
        with self._open(f"/api/v1/{path}") as answer:
            return json.load(answer)["data"]

    def _ask(self, kind: str, parameters: dict[str, str]) -> list[dict[str, Any]]:
        try:
            found: list[dict[str, Any]] = self.get(f"{kind}?{urllib.parse.urlencode(parameters)}")["result"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters['query']}: {error.read().decode()}") from None
        return found

    def _is_ready(self) -> bool:
        try:
            with self._open("/-/ready") as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _open(self, path: str) -> Any:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        return opener.open(f"http://127.0.0.1:{self._port}{path}", timeout=30)

    def _log(self) -> str:
        return (self._folder / "prometheus.log").read_text()[-3000:]
