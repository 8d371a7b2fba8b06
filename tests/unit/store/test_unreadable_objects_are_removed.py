"""Objects that their writers encrypted, or gave a false encoding, are in nobody's way and hide no store."""

import gzip
import shutil
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from minio.sse import SseCustomerKey

from lead_operator.bucket.cache_data_gc import read_digests, remove_portion
from lead_operator.bucket.record_reader import RecordReader, Records
from lead_protocol.object_keys import BuildKeys, CacheKeys
from lead_protocol.store.object_store import ObjectCorrupt
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
    with pytest.raises(ObjectCorrupt, match=r"400 InvalidRequest .* encrypted it with a key that nobody else has"):
        store.get(KEYS.result(1), max_bytes=10)
    reader = RecordReader(store, Records(), KEYS.prefix, 10)
    assert reader.parsed(KEYS.result(1), bytes, 10) is None and not reader.excess
    doomed = read_digests(store, KEYS)
    assert doomed == {DIGEST}
    while not remove_portion(store, KEYS, doomed):
        pass
    assert list(store.list("")) == []


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd", "gzip, gzip"])
def test_what_is_stored_is_read_as_it_is_whatever_its_writer_calls_it(minio: MinioServer, encoding: str) -> None:
    """It was a store that does not answer, ten seconds long, for its whole namespace. Audit: flood"""
    minio.admin().make_bucket("lead")
    store = S3Store(minio.target("lead"))
    said = {"Content-Encoding": encoding}
    minio.admin().put_object("lead", KEYS.result(1), BytesIO(b"no archive"), 10, metadata=said)
    assert store.get(KEYS.result(1), max_bytes=10) == b"no archive"
    assert store.get_range(KEYS.result(1), 3, 7) == b"archive"
    packed = gzip.compress(bytes(2**20))  # nor does a small one become a large one
    minio.admin().put_object("lead", KEYS.result(2), BytesIO(packed), len(packed), metadata=said)
    assert store.get(KEYS.result(2), max_bytes=len(packed)) == packed
