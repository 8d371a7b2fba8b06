"""One MinIO a test session, a fresh bucket a test."""

import secrets
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import ObjectStore
from lead_protocol.store.s3 import S3Store
from lead_protocol.store.s3_target import MIB, S3Limits, S3Target
from lead_testing.minio_server import MinioServer, minio_program
from lead_testing.store_proxy import StoreProxy

DOMAIN = "s3.test"  # MinIO takes what stands before it in the Host header for the bucket
QUICK = S3Limits(read_s=10, total_s=20, part_bytes=5 * MIB, first_pause_s=0.01, longest_pause_s=0.1)


@pytest.fixture(scope="session")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MinioServer]:
    with MinioServer(minio_program(), tmp_path_factory.mktemp("minio"), {"MINIO_DOMAIN": DOMAIN}) as server:
        yield server


@pytest.fixture
def bucket(minio: MinioServer) -> str:
    name = f"test-{secrets.token_hex(6)}"
    minio.admin().make_bucket(name)
    return name


@pytest.fixture
def s3(minio: MinioServer, bucket: str) -> S3Store:
    return S3Store(minio.target(bucket, "some/prefix"), QUICK)


@pytest.fixture
def by_host(minio: MinioServer, bucket: str, monkeypatch: pytest.MonkeyPatch) -> S3Target:
    """The bucket as a part of the host name; names below DOMAIN lead to loopback while the test runs."""
    asked = socket.getaddrinfo

    def resolve(host: Any, *words: Any, **options: Any) -> Any:
        return asked("127.0.0.1" if str(host).endswith(f".{DOMAIN}") else host, *words, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    endpoint = f"{DOMAIN}:{minio.endpoint.rpartition(':')[2]}"
    return replace(minio.target(bucket, "some/prefix", endpoint=endpoint), addressing="virtualHost")


@pytest.fixture
def proxy(minio: MinioServer) -> Iterator[StoreProxy]:
    with StoreProxy(minio.endpoint) as proxy:
        yield proxy


@pytest.fixture
def s3_behind_proxy(minio: MinioServer, bucket: str, proxy: StoreProxy) -> S3Store:
    return S3Store(minio.target(bucket, endpoint=proxy.endpoint), QUICK)


@pytest.fixture(params=["folder", "s3", "s3-by-host"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "folder":
        return FolderStore(tmp_path / "store")
    if request.param == "s3-by-host":
        return S3Store(request.getfixturevalue("by_host"), QUICK)
    found: S3Store = request.getfixturevalue("s3")
    return found
