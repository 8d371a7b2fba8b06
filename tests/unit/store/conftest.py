"""One MinIO a test session, a fresh bucket a test."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import ObjectStore
from lead_protocol.store.s3 import S3Store
from lead_protocol.store.s3_target import MIB, S3Limits
from lead_testing.minio_server import MinioServer, minio_program
from lead_testing.store_proxy import StoreProxy

QUICK = S3Limits(read_s=10, total_s=20, part_bytes=5 * MIB, first_pause_s=0.01, longest_pause_s=0.1)


@pytest.fixture(scope="session")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MinioServer]:
    with MinioServer(minio_program(), tmp_path_factory.mktemp("minio")) as server:
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
def proxy(minio: MinioServer) -> Iterator[StoreProxy]:
    with StoreProxy(minio.endpoint) as proxy:
        yield proxy


@pytest.fixture
def s3_behind_proxy(minio: MinioServer, bucket: str, proxy: StoreProxy) -> S3Store:
    return S3Store(minio.target(bucket, endpoint=proxy.endpoint), QUICK)


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "folder":
        return FolderStore(tmp_path / "store")
    found: S3Store = request.getfixturevalue("s3")
    return found
