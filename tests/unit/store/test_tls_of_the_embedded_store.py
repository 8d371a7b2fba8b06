"""TLS with an authority of the release's own: what clients refuse, and what they do while it is replaced."""

import shutil
import ssl
import time
from dataclasses import replace
from pathlib import Path

import pytest

from lead_operator.cli.storage_init import Account, EmbeddedStore, ProfileAccounts, StorageInitError, init_storage
from lead_operator.settings import StorageProfile
from lead_protocol.store.object_store import StoreDenied
from lead_protocol.store.open_store import open_store
from lead_protocol.store.s3 import S3Store
from lead_testing.local_cluster.pki import Authority, Identity
from lead_testing.minio_server import ROOT_PASSWORD, ROOT_USER, MinioServer, minio_program
from lead_testing.operator_process import wait_for

SERVER = Identity("server", "lead-minio", hosts=("IP:127.0.0.1", "DNS:lead-minio.lead-system.svc"))
RELOAD_S = 120  # MinIO reads mounted certificates once a minute


def mount(folder: Path, **files: bytes) -> None:
    """Replaces the files of a mounted volume as the kubelet does: by a link to another folder."""
    folder.mkdir(parents=True, exist_ok=True)
    version = folder / f"..{time.monotonic_ns()}"
    version.mkdir()
    for name, data in files.items():
        (version / name.replace("_", ".")).write_bytes(data)
    link = folder / "..data_tmp"
    link.symlink_to(version.name)
    link.replace(folder / "..data")
    for name in files:
        if not (file := folder / name.replace("_", ".")).exists():
            file.symlink_to(f"..data/{file.name}")


def authority(folder: Path) -> Authority:
    made = Authority(folder)
    made.issue(SERVER)
    return made


def serve_by(certificates: Path, signer: Authority) -> None:
    mount(
        certificates,
        public_crt=signer.certificate("server").read_bytes(),
        private_key=signer.key("server").read_bytes(),
    )


def test_clients_trust_the_releases_authority_alone_and_go_on_while_it_is_replaced(tmp_path: Path) -> None:
    """Both authorities, the new certificate, the new authority alone: no client restarts. Audit: minor-http."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not here to make certificates")
    first, second = authority(tmp_path / "first"), authority(tmp_path / "second")
    certificates, mounted = tmp_path / "certs", tmp_path / "s3"
    serve_by(certificates, first)
    old, new = (each.certificate("ca").read_bytes() for each in (first, second))
    key = {"access-key": ROOT_USER.encode(), "secret-key": ROOT_PASSWORD.encode()}
    mount(mounted, ca_crt=old, **key)
    ca_file = mounted / "ca.crt"
    with MinioServer(minio_program(), tmp_path / "minio", certificates=certificates, ca_file=ca_file) as minio:
        minio.admin().make_bucket("driving")
        environ = {"LEAD_STORE_URL": "s3://driving", "LEAD_S3_ENDPOINT": minio.endpoint, "LEAD_S3_SECURE": "true"}
        store = open_store(environ, credentials_dir=mounted)
        store.put("k", b"1")
        with pytest.raises(StoreDenied, match="TLS failed"):
            S3Store(replace(minio.target("driving"), ca_file=second.certificate("ca"))).get("k", max_bytes=10)
        with pytest.raises(StoreDenied, match="TLS failed"):
            S3Store(replace(minio.target("driving"), ca_file=None)).get("k", max_bytes=10)

        mount(mounted, ca_crt=old + new, **key)
        serve_by(certificates, second)
        wait_for("the new certificate", lambda: serves(minio, second.certificate("ca")), within_s=RELOAD_S)
        store.put("k", b"2")  # its connection may be of before, its trust is not
        assert S3Store(minio.target("driving")).get("k", max_bytes=10) == b"2"
        mount(mounted, ca_crt=new, **key)
        assert store.get("k", max_bytes=10) == open_store(environ, credentials_dir=mounted).get("k", max_bytes=10)

        profile = StorageProfile("default", minio.endpoint, "driving")
        entry = ProfileAccounts(profile, Account("lead-operator-default", "operator-secret"), {})
        embedded = EmbeddedStore(Account(ROOT_USER, ROOT_PASSWORD), (entry,), ca_file=ca_file)
        init_storage(embedded)
        with pytest.raises(StorageInitError, match="certificate"):
            init_storage(replace(embedded, ca_file=first.certificate("ca")))


def serves(minio: MinioServer, ca_file: Path) -> bool:
    host, port = minio.endpoint.split(":")
    try:
        ssl.get_server_certificate((host, int(port)), ca_certs=str(ca_file))
    except ssl.SSLError:
        return False
    return True
