"""A real MinIO on a loopback port with a folder of its own: for the tests of the store and whoever else needs S3.

with MinioServer(minio_program(), folder) as server:
    store = S3Store(server.target("bucket"))
"""

import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import urllib3
from minio import Minio
from minio.credentials.providers import StaticProvider
from minio.error import MinioException
from minio.minioadmin import MinioAdmin

from lead_protocol.store.s3_target import S3Target
from lead_testing.ports import free_port

ROOT_USER = "lead-test-root"
ROOT_PASSWORD = "lead-test-root-password"
START_DEADLINE_S = 300.0
POLL_S = 0.05


def minio_program() -> Path:
    """Finds MinIO on PATH or builds the pinned version; skips the calling test where neither can be."""
    found = shutil.which("minio")
    if found:
        return Path(found)
    import pytest  # here, because the server is useful outside tests too

    from lead_testing.local_cluster.binaries import ensure_programs
    from lead_testing.local_cluster.errors import CannotRun
    from lead_testing.local_cluster.home import Home

    try:
        return ensure_programs(Home.from_environment(), ["minio"])["minio"]
    except CannotRun as reason:
        pytest.skip(f"MinIO is neither on PATH nor can it be built: {reason}")


class MinioServer:
    """One server process; `stop` and `start` keep its data and its port."""

    def __init__(
        self,
        program: Path,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        *,
        certificates: Path | None = None,
        ca_file: Path | None = None,
    ) -> None:
        """`environment`: further variables, such as those of an identity provider.

        `certificates`: a folder with public.crt and private.key, which make it speak TLS; `ca_file`: who signed them.
        """
        self._program = program
        self._certificates, self._ca_file = certificates, ca_file
        self._folder = folder
        self._environment = dict(environment or {})
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "MinioServer":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def endpoint(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._port}"

    @property
    def log(self) -> Path:
        """What the server printed."""
        return self._folder / "minio.log"

    def start(self) -> None:
        """Starts the server and waits until it answers; raises RuntimeError with its log where it does not."""
        self._folder.mkdir(parents=True, exist_ok=True)
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(self._folder),
            "MINIO_ROOT_USER": ROOT_USER,
            "MINIO_ROOT_PASSWORD": ROOT_PASSWORD,
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
            "MINIO_CALLHOME_ENABLE": "off",
            **self._environment,
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self._program,
                    "server",
                    self._folder / "data",
                    "--address",
                    self.endpoint,
                    "--quiet",
                    *self._tls_words,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
            )
        deadline = time.monotonic() + START_DEADLINE_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"MinIO did not start at {self.endpoint}:\n{self.log.read_text()[-2000:]}")
            time.sleep(POLL_S)

    def stop(self) -> None:
        """Kills the server as a power cut would; its data stay."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def admin(self) -> Minio:
        """Returns a minio-py client with the root credentials."""
        return self._client()

    def users(self) -> MinioAdmin:
        """Returns the client of users and policies, with the root credentials."""
        return MinioAdmin(
            endpoint=self.endpoint,
            credentials=StaticProvider(ROOT_USER, ROOT_PASSWORD),
            secure=self._secure,
            region="us-east-1",
            http_client=self._pool(),
        )

    def add_user(self, access_key: str, secret_key: str, policy: Mapping[str, Any]) -> None:
        """Makes a user with one policy, or sets the key and the policy of one that exists."""
        users = self.users()
        users.policy_add(f"of-{access_key}", policy=dict(policy))
        users.user_add(access_key, secret_key)
        users.policy_set(f"of-{access_key}", user=access_key)

    def target(self, bucket: str, prefix: str = "", *, endpoint: str = "") -> S3Target:
        """Returns a target with root credentials, reached through `endpoint` (a proxy) where one is given."""
        return S3Target(
            endpoint=endpoint or self.endpoint,
            bucket=bucket,
            prefix=prefix,
            access_key=ROOT_USER,
            secret_key=ROOT_PASSWORD,
            secure=self._secure,
            ca_file=self._ca_file,
        )

    def _answers(self) -> bool:
        # Its health pages turn green before users and objects can be read, so a real call is made.
        once = self._pool(timeout=1.0)
        try:
            self._client(once).list_buckets()
        except (MinioException, urllib3.exceptions.HTTPError):
            return False
        return True

    @property
    def _secure(self) -> bool:
        return self._certificates is not None

    @property
    def _tls_words(self) -> tuple[str, ...]:
        return ("--certs-dir", str(self._certificates)) if self._certificates else ()

    def _pool(self, **options: Any) -> urllib3.PoolManager:
        ca_certs = str(self._ca_file) if self._ca_file else None
        return urllib3.PoolManager(retries=False, cert_reqs="CERT_REQUIRED", ca_certs=ca_certs, **options)

    def _client(self, pool: urllib3.PoolManager | None = None) -> Minio:
        pool = pool or (self._pool() if self._secure else None)
        return Minio(
            self.endpoint, access_key=ROOT_USER, secret_key=ROOT_PASSWORD, secure=self._secure, http_client=pool
        )
