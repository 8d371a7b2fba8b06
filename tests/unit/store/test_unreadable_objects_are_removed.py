"""An object that its writer encrypted with a key of their own is in nobody's way when it is to be removed."""

import shutil
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from minio.sse import SseCustomerKey

from lead_operator.cluster.cache_removal import read_digests, remove_portion
from lead_protocol.object_keys import BuildKeys, CacheKeys
from lead_protocol.store.object_store import StoreError
from lead_protocol.store.s3 import S3Store
from lead_testing.local_cluster.pki import Authority, Identity
from lead_testing.minio_server import MinioServer, minio_program

SERVER = Identity("server", "lead-minio", hosts=("IP:127.0.0.1",))
KEYS, DIGEST = BuildKeys("alice", "0a11ce"), "a1" * 32


@pytest.fixture
def minio(tmp_path: Path) -> Iterator[MinioServer]:
    """A server that takes keys of its clients: it speaks TLS."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not here to make certificates")
    signer, certificates = Authority(tmp_path / "authority"), tmp_path / "certificates"
    signer.issue(SERVER)
    certificates.mkdir()
    shutil.copy(signer.certificate("server"), certificates / "public.crt")
    shutil.copy(signer.key("server"), certificates / "private.key")
    ca_file = signer.certificate("ca")
    with MinioServer(minio_program(), tmp_path / "minio", certificates=certificates, ca_file=ca_file) as server:
        yield server


def test_a_result_encrypted_with_a_pods_own_key_keeps_no_removal(minio: MinioServer) -> None:
    """Audit: flood"""
    minio.admin().make_bucket("lead")
    store = S3Store(minio.target("lead"))
    store.put(CacheKeys("alice", DIGEST).manifest, b"{}")
    store.put(KEYS.control.published(1), f'{{"digest": "{DIGEST}"}}'.encode())
    minio.admin().put_object("lead", KEYS.result(1), BytesIO(b"{}"), 2, sse=SseCustomerKey(b"k" * 32))
    with pytest.raises(StoreError, match="400"):
        store.get(KEYS.result(1), max_bytes=10)
    doomed = read_digests(store, KEYS)
    assert doomed == {DIGEST}
    while not remove_portion(store, KEYS, doomed):
        pass
    assert list(store.list("")) == []
