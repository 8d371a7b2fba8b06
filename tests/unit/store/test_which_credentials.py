"""Which credentials a process takes, by its environment: what AWS's tools read is read here too, in their order."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lead_protocol.store.credentials import Credentials, CredentialsProvider
from lead_protocol.store.credentials_chain import StoreNotConfigured, credentials_from
from lead_protocol.store.instance_role import obtain_role
from lead_protocol.store.s3_answers import TryAgain

PAIR = {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "s3cr3t"}
ROLE = {"AWS_ROLE_ARN": "arn:aws:iam::1:role/lead", "AWS_WEB_IDENTITY_TOKEN_FILE": "/token"}


def chosen(environ: dict[str, str], folder: Path) -> CredentialsProvider:
    return credentials_from(environ, folder=folder, store_origin="https://store:9000")


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    for name, text in (("access-key", "mounted"), ("secret-key", "s3cr3t")):
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_session_token_of_the_environment_is_used(tmp_path: Path) -> None:
    found = chosen({**PAIR, "AWS_SESSION_TOKEN": "t0ken"}, tmp_path).current(1)
    assert found == Credentials("AKIA", "s3cr3t", "t0ken")


def test_mounted_files_come_before_the_environment(mounted: Path) -> None:
    assert chosen(PAIR, mounted).current(1).access_key == "mounted"
    assert chosen({**PAIR, "LEAD_S3_CREDENTIALS": "static"}, mounted).current(1).access_key == "mounted"


def test_a_folder_with_an_authority_alone_holds_no_credentials(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("PEM")
    assert chosen(PAIR, tmp_path).current(1).access_key == "AKIA"


@pytest.mark.parametrize(
    ("environ", "source"),
    [
        ({**PAIR, **ROLE}, "static credentials of the environment"),
        (ROLE, "(role arn:aws:iam::1:role/lead, STS https://sts.amazonaws.com/)"),
        ({**ROLE, "AWS_REGION": "eu-west-1"}, "STS https://sts.eu-west-1.amazonaws.com/"),
        ({**ROLE, "LEAD_S3_REGION": "cn-north-1"}, "STS https://sts.cn-north-1.amazonaws.com.cn/"),
        ({**ROLE, "AWS_ENDPOINT_URL_STS": "https://sts.example.com"}, "STS https://sts.example.com/"),
        ({"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/x"}, "instanceRole credentials"),
        ({"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://169.254.170.23/v1/credentials"}, "instanceRole credentials"),
        ({"LEAD_S3_CREDENTIALS": "instanceRole"}, "instanceRole credentials"),
        ({"LEAD_S3_CREDENTIALS": "webIdentity"}, "(no role ARN, STS https://store:9000/)"),
        (
            {"LEAD_S3_CREDENTIALS": "webIdentity", "LEAD_STS_ENDPOINT": "http://sts:1", "LEAD_STS_ROLE_ARN": "arn:r"},
            "(role arn:r, STS http://sts:1/)",
        ),
    ],
)
def test_each_kind_of_environment_has_its_credentials(environ: dict[str, str], source: str, tmp_path: Path) -> None:
    assert source in chosen(environ, tmp_path).source


def test_a_profile_of_the_aws_tools_is_read(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text("[work]\naws_access_key_id = AKIA2\naws_secret_access_key = x\naws_session_token = t\n")
    environ = {"AWS_PROFILE": "work", "AWS_SHARED_CREDENTIALS_FILE": str(file)}
    assert chosen(environ, tmp_path).current(1) == Credentials("AKIA2", "x", "t")
    for changed in ({"AWS_PROFILE": "play"}, {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none")}):
        with pytest.raises(StoreNotConfigured, match="has no usable profile"):
            chosen({**environ, **changed}, tmp_path)
    file.write_text("no ini file")
    with pytest.raises(StoreNotConfigured, match="has no usable profile"):
        chosen(environ, tmp_path)


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({}, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not both set"),
        ({"AWS_ACCESS_KEY_ID": "AKIA"}, "are not both set"),
        ({"LEAD_S3_CREDENTIALS": "none"}, "LEAD_S3_CREDENTIALS is 'none'; expected one of static, webIdentity, inst"),
        ({"LEAD_S3_CREDENTIALS": "static"}, "cannot read the credential file"),
        (
            {"LEAD_S3_CREDENTIALS": "webIdentity", "LEAD_STS_ENDPOINT": "sts:1"},
            "LEAD_STS_ENDPOINT is 'sts:1'; expected",
        ),
    ],
)
def test_what_is_missing_or_wrong_is_named(environ: dict[str, str], named: str, tmp_path: Path) -> None:
    with pytest.raises(StoreNotConfigured, match=named):
        chosen(environ, tmp_path)


@contextmanager
def metadata(body: str, status: int = 200) -> Iterator[str]:
    """Answers every GET as a container's metadata service would."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Logs nothing."""

        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1/credentials"
    finally:
        server.shutdown()
        server.server_close()


def an_answer(**changes: str) -> str:
    end = datetime.now(UTC) + timedelta(hours=6)
    good = {"AccessKeyId": "AKIA", "SecretAccessKey": "s3cr3t", "Token": "t0ken",
            "Expiration": end.strftime("%Y-%m-%dT%H:%M:%SZ")}  # fmt: skip
    return json.dumps({**good, **changes})


def test_a_containers_role_is_a_session_that_is_renewed_each_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    with metadata(an_answer()) as address:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", address)
        session = obtain_role(5)
    assert session.credentials == Credentials("AKIA", "s3cr3t", "t0ken")
    assert session.life_s == 3600


@pytest.mark.parametrize(
    "body",
    ["", "{}", "[]", "nonsense", an_answer(Expiration="soon"), an_answer(Expiration="2001-01-01T00:00:00Z"),
     an_answer(AccessKeyId="")],
)  # fmt: skip
def test_a_metadata_service_that_answers_something_else_is_named_without_what_it_said(
    body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with metadata(body) as address:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", address)
        with pytest.raises(TryAgain, match="instanceRole credentials") as caught:
            obtain_role(5)
    assert "s3cr3t" not in str(caught.value)


def test_a_metadata_service_that_is_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:9/")
    with pytest.raises(TryAgain, match="has this pod a role"):
        obtain_role(1)
