"""The bucket in the host name; `test_conformance.py` asks the same of it as of the bucket in the path."""

import shutil
import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from lead_protocol.store.object_store import ObjectNotFound, StoreDenied, StoreUnavailable
from lead_protocol.store.open_store import open_store, s3_target
from lead_protocol.store.s3 import S3Store
from lead_protocol.store.s3_target import S3Limits, S3Target
from lead_testing.local_cluster.pki import Authority, Identity
from lead_testing.minio_server import ROOT_PASSWORD, ROOT_USER, MinioServer
from lead_testing.ports import free_port
from lead_testing.store_proxy import StoreProxy

BY_PATH = S3Target("s3.example.com:8443", "driving", "lead")
BY_HOST = replace(BY_PATH, addressing="virtualHost")


def test_the_bucket_is_in_the_path_or_in_the_host_name() -> None:
    assert BY_PATH.request_url("lead/a b+c") == "https://s3.example.com:8443/driving/lead/a%20b%2Bc"
    assert BY_PATH.request_url("") == "https://s3.example.com:8443/driving"
    assert BY_HOST.request_url("lead/a b+c") == "https://driving.s3.example.com:8443/lead/a%20b%2Bc"
    assert BY_HOST.request_url("") == "https://driving.s3.example.com:8443/"
    assert BY_HOST.url == BY_PATH.url == "s3://driving/lead"


def test_the_sts_keeps_the_stores_own_name(tmp_path: Path) -> None:
    environ = {
        "LEAD_STORE_URL": "s3://driving/lead", "LEAD_S3_ENDPOINT": "s3.example.com:8443",
        "LEAD_S3_ADDRESSING": "virtualHost", "LEAD_S3_CREDENTIALS": "webIdentity",
    }  # fmt: skip
    target = s3_target(environ, credentials_dir=tmp_path)
    assert target.authority == "driving.s3.example.com:8443"
    assert "STS https://s3.example.com:8443/" in target.credentials.source


def test_both_addressings_lead_to_the_same_object(minio: MinioServer, bucket: str, by_host: S3Target) -> None:
    by_path = S3Store(minio.target(bucket, "some/prefix"))
    S3Store(by_host).put("a b/c+d.json", b"by host")
    assert by_path.get("a b/c+d.json", max_bytes=10) == b"by host"
    by_path.put("a b/other", b"by path")
    assert [found.key for found in S3Store(by_host).list("a b/")] == ["a b/c+d.json", "a b/other"]


def test_an_object_is_copied_inside_the_store_and_deleted(by_host: S3Target) -> None:
    store = S3Store(by_host)
    store.put("staged/a b", b"whole")
    found = store.head("staged/a b")
    assert found is not None
    store.copy("staged/a b", "published/a b", etag=found.etag)
    assert store.get("published/a b", max_bytes=5) == b"whole"
    copied = store.attest("published/a b")
    assert copied is not None and copied.size == 5
    store.delete("staged/a b")
    assert [each.key for each in store.list("")] == ["published/a b"]


def test_the_environment_asks_for_it(bucket: str, by_host: S3Target, tmp_path: Path) -> None:
    environ = {
        "LEAD_STORE_URL": f"s3://{bucket}", "LEAD_S3_ENDPOINT": by_host.endpoint, "LEAD_S3_SECURE": "false",
        "LEAD_S3_ADDRESSING": "virtualHost", "AWS_ACCESS_KEY_ID": ROOT_USER, "AWS_SECRET_ACCESS_KEY": ROOT_PASSWORD,
    }  # fmt: skip
    store = open_store(environ, credentials_dir=tmp_path / "none")
    assert store.create("k", b"x") is True
    with pytest.raises(ObjectNotFound, match=rf"s3://{bucket}/none at {bucket}\.{by_host.endpoint}"):
        store.get("none", max_bytes=1)


def test_an_error_names_the_host_that_was_asked(by_host: S3Target) -> None:
    gone = replace(by_host, endpoint=f"s3.test:{free_port()}")
    with pytest.raises(StoreUnavailable, match=rf" at {gone.bucket}\.{gone.endpoint}"):
        S3Store(gone, S3Limits(total_s=0.5)).get("k", max_bytes=1)


def test_a_certificate_is_of_the_host_with_the_bucket(minio: MinioServer, by_host: S3Target, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not here to make certificates")
    authority = Authority(tmp_path)
    for name, host in (("below", "*.s3.test"), ("alone", "s3.test")):
        authority.issue(Identity(name, "store", hosts=(f"DNS:{host}",)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.certificate("below"), authority.key("below"))
    with StoreProxy(minio.endpoint, tls=context) as proxy:
        endpoint = f"s3.test:{proxy.port}"
        target = replace(by_host, endpoint=endpoint, secure=True, ca_file=authority.certificate("ca"))
        S3Store(target).put("k", b"1")
        assert S3Store(by_host).get("k", max_bytes=1) == b"1"
        context.load_cert_chain(authority.certificate("alone"), authority.key("alone"))
        with pytest.raises(StoreDenied, match=rf" at {target.bucket}\.{endpoint}: TLS failed"):
            S3Store(target).get("k", max_bytes=1)
