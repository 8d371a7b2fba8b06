"""The environment names the store; what is missing or wrong is one clear error."""

from pathlib import Path

import pytest

from lead_protocol.store.credentials import Credentials
from lead_protocol.store.folder import FolderStore
from lead_protocol.store.open_store import StoreNotConfigured, open_store, s3_target
from lead_testing.minio_server import ROOT_PASSWORD, ROOT_USER, MinioServer

S3 = {"LEAD_STORE_URL": "s3://lead/some/prefix", "LEAD_S3_ENDPOINT": "store:9000", "LEAD_S3_SECURE": "false"}


@pytest.fixture
def credentials(tmp_path: Path) -> Path:
    folder = tmp_path / "s3"
    folder.mkdir()
    (folder / "access-key").write_text("the-access-key\n")
    (folder / "secret-key").write_text("the-secret-key\n")
    return folder


def test_a_file_url_opens_a_folder(tmp_path: Path) -> None:
    store = open_store({"LEAD_STORE_URL": f"file://{tmp_path}/a%20b"})
    assert isinstance(store, FolderStore)
    assert store.url == f"file://{tmp_path}/a b"


def test_an_s3_url_opens_s3_with_the_mounted_credentials(credentials: Path) -> None:
    target = s3_target(S3, credentials_dir=credentials)
    assert (target.bucket, target.prefix, target.endpoint, target.secure) == (
        "lead",
        "some/prefix",
        "store:9000",
        False,
    )
    assert target.credentials.current(1) == Credentials("the-access-key", "the-secret-key")
    assert open_store(S3, credentials_dir=credentials).url == "s3://lead/some/prefix"
    assert "the-secret-key" not in f"{target!r} {target.credentials!r} {target.credentials.current(1)!r}"


def test_a_mounted_certificate_authority_is_used(credentials: Path) -> None:
    (credentials / "ca.crt").write_text("PEM")
    assert s3_target(S3, credentials_dir=credentials).ca_file == credentials / "ca.crt"


def test_a_laptop_may_use_the_usual_variables(minio: MinioServer, bucket: str, tmp_path: Path) -> None:
    variables = {
        "LEAD_STORE_URL": f"s3://{bucket}", "LEAD_S3_ENDPOINT": minio.endpoint, "LEAD_S3_SECURE": "false",
        "AWS_ACCESS_KEY_ID": ROOT_USER, "AWS_SECRET_ACCESS_KEY": ROOT_PASSWORD,
    }  # fmt: skip
    store = open_store(variables, credentials_dir=tmp_path / "none")
    assert store.create("k", b"x") is True


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"LEAD_STORE_URL": ""}, "LEAD_STORE_URL is not set"),
        ({"LEAD_STORE_URL": "http://x"}, "LEAD_STORE_URL is 'http://x'"),
        ({"LEAD_STORE_URL": "file://host/x"}, "LEAD_STORE_URL"),
        ({"LEAD_STORE_URL": "s3://UPPER/x"}, "bucket name"),
        ({"LEAD_STORE_URL": "s3://lead/../x"}, "safe prefix"),
        ({"LEAD_S3_ENDPOINT": ""}, "LEAD_S3_ENDPOINT is not set"),
        ({"LEAD_S3_ENDPOINT": "http://store:9000"}, "without http://"),
        ({"LEAD_S3_ENDPOINT": "store:9000/path"}, "LEAD_S3_ENDPOINT"),
        ({"LEAD_S3_SECURE": "yes"}, "true or false"),
        ({"LEAD_S3_ADDRESSING": "virtual"}, "LEAD_S3_ADDRESSING is 'virtual'; expected path or virtualHost"),
        ({"LEAD_S3_ADDRESSING": "virtualHost", "LEAD_S3_ENDPOINT": "10.0.0.9:9000"},
         "LEAD_S3_ADDRESSING is 'virtualHost'; expected path, because the endpoint 10.0.0.9:9000 is an IP address"),
        ({"LEAD_S3_ADDRESSING": "virtualHost", "LEAD_S3_ENDPOINT": "[fd00::1]"}, "is an IP address"),
        ({"LEAD_S3_ADDRESSING": "virtualHost", "LEAD_STORE_URL": "s3://my.data", "LEAD_S3_SECURE": "true"},
         r"the bucket my.data has a dot, and a certificate for \*.store is none for my.data.store$"),
    ],
)  # fmt: skip
def test_a_wrong_variable_is_named(credentials: Path, changes: dict[str, str], named: str) -> None:
    with pytest.raises(StoreNotConfigured, match=named):
        open_store({**S3, **changes}, credentials_dir=credentials)


def test_a_missing_credential_is_named(credentials: Path, tmp_path: Path) -> None:
    (credentials / "secret-key").write_text("")
    with pytest.raises(StoreNotConfigured, match="secret-key is empty"):
        open_store(S3, credentials_dir=credentials)
    (credentials / "secret-key").unlink()
    with pytest.raises(StoreNotConfigured, match="secret-key"):
        open_store(S3, credentials_dir=credentials)
    with pytest.raises(StoreNotConfigured, match="AWS_ACCESS_KEY_ID"):
        open_store(S3, credentials_dir=tmp_path / "none")


def test_a_laptop_names_the_stores_authority_as_the_aws_command_line_does(tmp_path: Path) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_CA_BUNDLE": "lead-key/ca.crt"}
    environ = {"LEAD_STORE_URL": "s3://lead", "LEAD_S3_ENDPOINT": "127.0.0.1:9000", **keys}
    assert s3_target(environ, credentials_dir=tmp_path / "none").ca_file == Path("lead-key/ca.crt")
    (tmp_path / "access-key").write_text("a")
    (tmp_path / "secret-key").write_text("b")
    assert s3_target(environ, credentials_dir=tmp_path).ca_file == tmp_path / "ca.crt"
