"""The store's certificate is signed by another authority from one moment to the next: `ca.crt` is read again."""

import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lead_protocol.store.object_store import StoreDenied, StoreUnavailable
from lead_protocol.store.open_store import open_store
from lead_protocol.store.s3 import S3Store
from lead_protocol.store.s3_answers import TryAgain
from lead_protocol.store.s3_target import MIB, S3Limits
from lead_protocol.store.trusted_pool import TrustedPool
from lead_protocol.store.web_identity import TokenExchange, WebIdentity
from lead_testing.minio_server import ROOT_PASSWORD, ROOT_USER, MinioServer
from lead_testing.operator_process import wait_for
from lead_testing.store_proxy import StoreProxy

AT_ONCE = S3Limits(read_s=10, total_s=20, part_bytes=5 * MIB, first_pause_s=0.01, longest_pause_s=0.05)


@dataclass(frozen=True)
class Certificate:
    """A certificate that is its own authority."""

    file: Path
    key: Path


def a_certificate(folder: Path, name: str) -> Certificate:
    made = Certificate(folder / f"{name}.crt", folder / f"{name}.key")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-days", "2",
         "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", made.key, "-out", made.file],
        check=True, capture_output=True,
    )  # fmt: skip
    return made


@dataclass
class Tls:
    """A store behind TLS, and what its client trusts."""

    proxy: StoreProxy
    context: ssl.SSLContext
    old: Certificate
    new: Certificate
    folder: Path

    def switch(self) -> None:
        """Serves the new certificate and ends the connections that there are."""
        self.context.load_cert_chain(self.new.file, self.new.key)
        self.proxy.plan("drop-before")

    def trust(self, *certificates: Certificate) -> None:
        """Writes ca.crt as the kubelet does."""
        unfinished = self.folder / ".ca.crt"
        unfinished.write_bytes(b"".join(each.file.read_bytes() for each in certificates))
        unfinished.replace(self.folder / "ca.crt")


@pytest.fixture
def tls(minio: MinioServer, tmp_path: Path) -> Iterator[Tls]:
    folder = tmp_path / "s3"
    folder.mkdir()
    (folder / "access-key").write_text(ROOT_USER)
    (folder / "secret-key").write_text(ROOT_PASSWORD)
    old, new = (a_certificate(tmp_path, name) for name in ("old", "new"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(old.file, old.key)
    with StoreProxy(minio.endpoint, tls=context) as proxy:
        yield Tls(proxy, context, old, new, folder)


def opened(tls: Tls, bucket: str, limits: S3Limits = AT_ONCE) -> S3Store:
    environ = {"LEAD_STORE_URL": f"s3://{bucket}", "LEAD_S3_ENDPOINT": tls.proxy.endpoint}
    store = open_store(environ, credentials_dir=tls.folder, limits=limits)
    assert isinstance(store, S3Store)
    return store


def test_a_changed_ca_crt_is_read_again_after_a_failure(tls: Tls, bucket: str) -> None:
    tls.trust(tls.old)
    store = opened(tls, bucket)
    store.put("k", b"x")
    tls.trust(tls.new)
    tls.switch()
    store.put("k", b"y")
    assert store.get("k", max_bytes=10) == b"y"


def test_an_authority_that_is_dropped_is_trusted_no_more_by_a_process_that_lives(tls: Tls, bucket: str) -> None:
    tls.trust(tls.old, tls.new)
    store = opened(tls, bucket)
    store.put("k", b"x")
    tls.trust(tls.new)
    tls.proxy.plan("drop-before")  # the next connection meets the old certificate again
    with pytest.raises(StoreDenied, match="TLS failed"):
        store.put("k", b"y")
    tls.switch()
    store.put("k", b"z")
    assert store.get("k", max_bytes=10) == b"z"


def test_one_that_is_mounted_later_is_used(tls: Tls, bucket: str) -> None:
    store = opened(tls, bucket)
    with pytest.raises(StoreDenied, match=r"TLS failed .*check `ca\.crt`"):
        store.put("k", b"x")
    tls.trust(tls.old)
    store.put("k", b"x")


def test_a_stranger_behind_the_address_is_refused_however_often(tls: Tls, bucket: str) -> None:
    tls.trust(tls.old)
    store = opened(tls, bucket)
    store.put("k", b"x")
    tls.switch()
    for _ in range(2):
        with pytest.raises(StoreDenied, match="TLS failed"):
            store.put("k", b"y")


def test_an_authority_that_comes_later_is_waited_for_by_who_waits_for_keys(tls: Tls, bucket: str) -> None:
    tls.trust(tls.old)
    store = opened(tls, bucket, replace(AT_ONCE, rotation_s=20))
    store.put("k", b"x")
    tls.switch()
    call = threading.Thread(target=store.put, args=("k", b"y"))
    call.start()
    wait_for("the dropped call", lambda: tls.proxy.seen.count("PUT", fault="drop-before") == 1)
    tls.trust(tls.new)
    call.join(20)
    assert store.get("k", max_bytes=10) == b"y"


def test_an_sts_is_trusted_by_the_same_file(tls: Tls, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("x")
    identity = WebIdentity(f"https://{tls.proxy.endpoint}/", tmp_path / "token")
    exchange = TokenExchange(identity, TrustedPool(tls.folder / "ca.crt"))
    with pytest.raises(StoreDenied, match="TLS failed"):
        exchange.obtain(10)
    tls.trust(tls.old)
    with pytest.raises(StoreDenied, match="the STS answered 400"):  # this MinIO has no identity provider
        exchange.obtain(10)


@pytest.fixture
def ends_in_the_handshake() -> Iterator[str]:
    """Host and port of a server that is stopped while it shakes hands, again and again."""

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_a_server_that_goes_away_in_the_handshake_is_away_and_no_stranger(
    ends_in_the_handshake: str, tmp_path: Path
) -> None:
    for name, value in (("access-key", ROOT_USER), ("secret-key", ROOT_PASSWORD), ("token", "x")):
        (tmp_path / name).write_text(value)
    (tmp_path / "ca.crt").write_bytes(a_certificate(tmp_path, "authority").file.read_bytes())
    environ = {"LEAD_STORE_URL": "s3://driving", "LEAD_S3_ENDPOINT": ends_in_the_handshake}
    store = open_store(environ, credentials_dir=tmp_path, limits=replace(AT_ONCE, total_s=0.5))
    with pytest.raises(StoreUnavailable, match="in TLS"):
        store.get("k", max_bytes=10)
    identity = WebIdentity(f"https://{ends_in_the_handshake}/", tmp_path / "token")
    with pytest.raises(TryAgain, match="no answer"):
        TokenExchange(identity, TrustedPool(tmp_path / "ca.crt")).obtain(10)
