"""`LEAD_STORE_URL` with the wrong rights: one sentence that says what to ask the store's administrator for."""

import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from lead_protocol.exit_codes import ExitCode
from lead_testing.loopback_server import LoopbackServer
from lead_trainer.cli import main
from lead_trainer.example_worlds.lead.tree import write_example_tree

EMPTY_LIST = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
DIGEST = "a" * 64


class RefusingStore(BaseHTTPRequestHandler):
    """S3 as a key sees it that may not call the methods in `refused`; the bucket is empty."""

    protocol_version = "HTTP/1.1"
    refused: frozenset[str] = frozenset()
    code = "AccessDenied"

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.command in self.refused:
            status, body = 403, f"<Error><Code>{self.code}</Code><Message>no</Message></Error>".encode()
        elif "list-type" in self.path:
            status, body = 200, EMPTY_LIST
        else:
            status, body = 404, b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>"
        self.send_response(status)
        self.send_header("Server", "MinIO")
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer

    def log_message(self, *words: object) -> None:
        """Says nothing."""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[RefusingStore]]:
    """A refusing store that the environment names."""

    class Handler(RefusingStore):
        """This test's own."""

    with LoopbackServer(Handler) as server:
        for name, value in {"LEAD_STORE_URL": "s3://lead/team", "LEAD_S3_ENDPOINT": server.endpoint,
                            "LEAD_S3_SECURE": "false", "AWS_ACCESS_KEY_ID": "somebody",
                            "AWS_SECRET_ACCESS_KEY": "secret-of-somebody"}.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        yield Handler


@pytest.mark.parametrize("methods", [{"GET", "HEAD", "PUT", "POST"}, {"PUT", "POST"}])
@pytest.mark.parametrize("command", ["train", "cache"])
def test_a_local_run_says_which_rights_it_needs(
    store: type[RefusingStore], tmp_path: Path, capsys: pytest.CaptureFixture[str], methods: set[str], command: str
) -> None:
    store.refused = frozenset(methods)
    write_example_tree(tmp_path / "tree", routes=1, frames=4)
    words = [command, "preset=demo", f"carla_root={tmp_path / 'tree'}", f"logdir={tmp_path / 'out'}", "epochs=1"]
    assert main(words) == ExitCode.STORE_DENIED
    said = [line for line in capsys.readouterr().err.splitlines() if not re.match(r"\{|\d\d:", line)]
    assert len(said) == 1, said
    assert re.match(r"error: (GET|PUT|POST) s3://lead/team/(caches|builds)/local/.* 403 AccessDenied", said[0])
    assert said[0].endswith(
        "ask the store's administrator to let this key Get, List, Put and Delete objects of s3://lead/team below "
        "caches/local/ and builds/local/, or unset LEAD_STORE_URL to build the cache beside the data"
    )


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["fsck", f"caches/team/{DIGEST}"], "Get and List objects of s3://lead/team below the prefix that is checked"),
        (["export", "runs/team/uid", "bundle"], "Get and List objects of s3://lead/team below runs/<namespace>/"),
        (["tensorboard", "-n", "team"], "Get and List objects of s3://lead/team below runs/<namespace>/"),
        (["example-data", "store:datasets/x", "--routes", "1", "--frames", "2"],
         "Get and Put objects of s3://lead/team below the prefix that is written"),
    ],
)  # fmt: skip
def test_every_command_asks_for_what_it_reads_or_writes(
    store: type[RefusingStore], capsys: pytest.CaptureFixture[str], words: list[str], asked: str
) -> None:
    store.refused = frozenset({"GET", "HEAD", "PUT", "POST"})
    assert main(words) == ExitCode.STORE_DENIED
    assert capsys.readouterr().err.rstrip().endswith(f"ask the store's administrator to let this key {asked}")


def test_a_key_that_the_store_does_not_know_is_replaced_not_widened(
    store: type[RefusingStore], capsys: pytest.CaptureFixture[str]
) -> None:
    store.refused, store.code = frozenset({"GET", "HEAD"}), "InvalidAccessKeyId"
    assert main(["fsck", f"caches/team/{DIGEST}"]) == ExitCode.STORE_DENIED
    assert "the store takes no such key: ask its administrator for a new one" in capsys.readouterr().err
