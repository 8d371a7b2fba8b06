"""The whole way of a pod's token, but for the pod: a real API server signs it, the sidecar hands its keys to MinIO."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lead_operator.cli.storage_init import Account, EmbeddedStore, ProfileAccounts, init_storage
from lead_operator.cli.store_policies import ROLE_POLICIES
from lead_operator.cli.token_keys import ApiServer, KeyRelay, KeysUnavailable, serve
from lead_operator.settings import StorageProfile
from lead_protocol import environment as names
from lead_protocol.store.object_store import StoreDenied
from lead_protocol.store.open_store import open_store
from lead_testing.local_cluster.control_plane import ControlPlane
from lead_testing.minio_server import ROOT_PASSWORD, ROOT_USER, MinioServer, minio_program
from lead_testing.token_issuer import CLIENT_SECRET, ROLE_ARN


@pytest.fixture(scope="module")
def api_credentials(server: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the kubelet projects into the sidecar: a token of MinIO's ServiceAccount and the cluster's authority."""
    folder = tmp_path_factory.mktemp("api")
    server.kubectl("-n", "lead-system", "create", "serviceaccount", "lead-minio")
    (folder / "token").write_text(server.kubectl("-n", "lead-system", "create", "token", "lead-minio"))
    config = json.loads(Path(server.kubeconfig).read_text())
    import base64

    authority = config["clusters"][0]["cluster"]["certificate-authority-data"]
    (folder / "ca.crt").write_bytes(base64.b64decode(authority))
    return folder


@contextmanager
def relayed(api_server: ApiServer) -> Iterator[str]:
    relay: list[KeyRelay] = []
    pages = serve("127.0.0.1", 0, lambda path: relay[0].page(path))
    url = f"http://127.0.0.1:{pages.server_port}"
    relay.append(KeyRelay(api_server.read, url))
    thread = threading.Thread(target=pages.serve_forever, daemon=True)
    thread.start()
    try:
        yield url
    finally:
        pages.shutdown()
        pages.server_close()


def test_the_keys_need_a_token_and_no_further_right(
    server: ControlPlane, api_credentials: Path, tmp_path: Path
) -> None:
    """MinIO's ServiceAccount may read what every ServiceAccount may; nobody may without a token. Audit: B3."""
    assert ApiServer(server.url, api_credentials).read("/openid/v1/jwks")["keys"]
    with pytest.raises(KeysUnavailable, match="answered 403"):
        ApiServer(server.url, api_credentials).read("/api/v1/namespaces/lead-system/secrets")
    (tmp_path / "ca.crt").write_bytes((api_credentials / "ca.crt").read_bytes())
    (tmp_path / "token").write_text("nobodys")
    with pytest.raises(KeysUnavailable, match="answered 401"):
        ApiServer(server.url, tmp_path).read("/openid/v1/jwks")


def test_a_token_of_the_api_server_opens_the_folders_of_its_namespace(
    server: ControlPlane, api_credentials: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod has no lasting key: its projected token is exchanged, and reaches its namespace alone. Audit: B3."""
    for namespace in ("tokens-a", "tokens-b"):
        server.kubectl("create", "namespace", namespace)
        server.kubectl("-n", namespace, "create", "serviceaccount", "lead-run")
    token_file = tmp_path / "token"
    audience = ("--audience", names.STORE_TOKEN_AUDIENCE)
    token_file.write_text(server.kubectl("-n", "tokens-a", "create", "token", "lead-run", *audience))
    monkeypatch.setattr(names, "STORE_TOKEN_FILE", str(token_file))
    with relayed(ApiServer(server.url, api_credentials)) as url:
        identity = {
            "MINIO_IDENTITY_OPENID_CONFIG_URL": f"{url}/.well-known/openid-configuration",
            "MINIO_IDENTITY_OPENID_CLIENT_ID": names.STORE_TOKEN_AUDIENCE,
            "MINIO_IDENTITY_OPENID_CLIENT_SECRET": CLIENT_SECRET,
            "MINIO_IDENTITY_OPENID_ROLE_POLICY": ",".join(ROLE_POLICIES),
            "MINIO_STS_DURATION": "1h",
        }
        with MinioServer(minio_program(), tmp_path / "minio", identity) as minio:
            profile = StorageProfile("default", minio.endpoint, "driving", secure=False)
            people = {name: Account(f"lead-data-default.{name}", "data-secret") for name in ("tokens-a", "tokens-b")}
            entry = ProfileAccounts(profile, Account("lead-operator-default", "operator-secret"), people)
            init_storage(EmbeddedStore(Account(ROOT_USER, ROOT_PASSWORD), (entry,)))
            environ = {
                names.STORE_URL: profile.url, names.STORE_ENDPOINT: minio.endpoint, names.STORE_SECURE: "false",
                names.STORE_CREDENTIALS: "webIdentity", names.STS_ROLE_ARN: ROLE_ARN,
            }  # fmt: skip
            pod = open_store(environ, credentials_dir=tmp_path / "none")
            assert pod.create("runs/tokens-a/u/train-s0/manifest/1.json", b"1")
            for key in ("runs/tokens-b/u/k", "control/tokens-a/u/ended.json", "datasets/tokens-a/k"):
                with pytest.raises(StoreDenied):
                    pod.put(key, b"1")

            token_file.write_text(server.kubectl("-n", "tokens-a", "create", "token", "lead-run"))  # for the API server
            with pytest.raises(StoreDenied):
                open_store(environ, credentials_dir=tmp_path / "none").head("runs/tokens-a/u/k")
