"""Whatever an STS answers is bounded and named: good, refused, hostile, by a wrong clock, or by something else."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lead_protocol.store.credentials import Credentials
from lead_protocol.store.object_store import StoreDenied
from lead_protocol.store.s3_answers import TryAgain, explain_failure
from lead_protocol.store.sts_answers import MAX_ANSWER_BYTES, explain_refusal, parse_session
from lead_protocol.store.trusted_pool import TrustedPool
from lead_protocol.store.web_identity import TokenExchange, WebIdentity

NOW = datetime(2026, 11, 22, 12, 0, 0, tzinfo=UTC)
HEADERS = {"Date": format_datetime(NOW, usegmt=True)}
FIELDS = {
    "AccessKeyId": "KEY", "SecretAccessKey": "secret", "SessionToken": "token", "Expiration": "2026-11-22T13:00:00Z",
}  # fmt: skip


def an_answer(**changes: str | None) -> bytes:
    fields = {name: text for name, text in {**FIELDS, **changes}.items() if text is not None}
    inner = "".join(f"<{name}>{text}</{name}>" for name, text in fields.items())
    return (
        '<?xml version="1.0" encoding="UTF-8"?><AssumeRoleWithWebIdentityResponse '
        'xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>'
        f"<Credentials>{inner}</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
    ).encode()


def a_refusal(code: str, message: str = "because") -> bytes:
    return (
        '<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type></Type>'
        f"<Code>{code}</Code><Message>{message}</Message></Error></ErrorResponse>"
    ).encode()


def parsed_life_s(body: bytes, *, date: datetime = NOW, clock: datetime = NOW) -> float:
    headers = {"Date": format_datetime(date, usegmt=True)}
    return parse_session(headers, body, asked_s=3600, where="here", now=clock).life_s


def test_a_good_answer_is_a_session() -> None:
    session = parse_session(HEADERS, an_answer(), asked_s=3600, where="here", now=NOW)
    assert session.credentials == Credentials("KEY", "secret", "token")
    assert session.life_s == 3600


@pytest.mark.parametrize("wrong", [timedelta(days=-400), timedelta(hours=3)])
def test_a_wrong_clock_of_this_machine_changes_no_life(wrong: timedelta) -> None:
    assert parsed_life_s(an_answer(), clock=NOW + wrong) == 3600


def test_without_a_date_this_machines_clock_counts() -> None:
    session = parse_session({}, an_answer(), asked_s=3600, where="here", now=NOW + timedelta(minutes=30))
    assert session.life_s == 1800


def test_nothing_is_used_longer_than_was_asked_for() -> None:
    for end in ("9999-12-31T23:59:59Z", "2026-11-29T00:00:00Z"):
        assert parsed_life_s(an_answer(Expiration=end)) == 3600


@pytest.mark.parametrize(
    "body, named",
    [
        (b"", "not that of an STS"),
        (b"\x00\xff\xfe", "not that of an STS"),
        (b"<html><body>Bad gateway", "not that of an STS"),
        (b"{}", "not that of an STS"),
        (b"<a/>", "not that of an STS"),
        (b'<?xml version="1.0" encoding="klingon"?><a/>', "not that of an STS"),
        (an_answer()[:-30], "not that of an STS"),
        (an_answer(AccessKeyId=None), "no AccessKeyId"),
        (an_answer(SecretAccessKey=""), "no SecretAccessKey"),
        (an_answer(SessionToken=None), "no SessionToken"),
        (an_answer(Expiration=None), "no Expiration"),
        (an_answer(AccessKeyId="KEY&#13;&#10;Host: evil"), "AccessKeyId has 15 characters"),
        (an_answer(SessionToken="schlüssel"), "printable ASCII"),
        (an_answer(SessionToken="x" * 17_000), "SessionToken has 17000 characters, expected at most 16384"),
        (an_answer(Expiration="soon"), "Expiration is soon, expected an ISO 8601 time"),
        (an_answer(Expiration=f"1{'0' * 30}-01-01T00:00:00Z"), "expected an ISO 8601 time"),
        (an_answer(Expiration="2026-11-22T11:00:00Z"), "ended 3600 s before the answer"),
        (an_answer(Expiration="0001-01-01T00:00:00+23:59"), "before the answer"),
    ],
)
def test_an_answer_that_is_no_session_is_named(body: bytes, named: str) -> None:
    with pytest.raises(TryAgain, match=named):
        parse_session(HEADERS, body, asked_s=3600, where="here", now=NOW)


def bombs() -> Iterator[bytes]:
    laughs = "".join(f'<!ENTITY l{level} "{f"&l{level - 1};" * 10}">' for level in range(1, 10))
    text = f'<!DOCTYPE a [<!ENTITY l0 "ha">{laughs}]><a>&l9;</a>'
    yield text.encode()
    yield text.encode("utf-16")
    yield b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><Credentials><AccessKeyId>&x;</AccessKeyId></Credentials>'
    yield b'<!DOCTYPE a SYSTEM "http://127.0.0.1:9/evil.dtd"><a/>'
    yield b"<a>" * 10_000 + b"</a>" * 10_000


@pytest.mark.parametrize("bomb", list(bombs()), ids=["laughs", "laughs in UTF-16", "a file", "a DTD", "deep"])
def test_bombs_are_no_answers_and_cost_nothing(bomb: bytes) -> None:
    began = time.process_time()
    with pytest.raises(TryAgain, match="not that of an STS"):
        parse_session(HEADERS, bomb, asked_s=3600, where="here", now=NOW)
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "status, body, named",
    [
        (
            400,
            a_refusal("InvalidParameterValue", "Token is expired"),
            r"400 InvalidParameterValue \(Token is expired\)",
        ),
        (403, a_refusal("AccessDenied"), "the profile's role ARN"),
        (400, a_refusal("PackedPolicyTooLarge"), "PackedPolicyTooLarge"),
        (403, b"<html>nobody comes in</html>", "the STS answered 403; check that the store trusts"),
        (301, b"", "a redirect, which is refused"),
    ],
)
def test_a_refusal_names_the_answer_and_what_to_do(status: int, body: bytes, named: str) -> None:
    error = explain_refusal(status, HEADERS, body, where="here", now=NOW)
    assert isinstance(error, StoreDenied) and error.of_key
    with pytest.raises(StoreDenied, match=named):
        raise error


@pytest.mark.parametrize(
    "status, body",
    [(500, b""), (503, a_refusal("STSIAMNotInitialized")), (429, b""), (400, a_refusal("IDPCommunicationError"))],
)
def test_what_may_pass_is_tried_again(status: int, body: bytes) -> None:
    assert isinstance(explain_refusal(status, HEADERS, body, where="here", now=NOW), TryAgain)


@pytest.mark.parametrize("status, body", [(404, b""), (404, b"<html>nothing here</html>"), (400, b"{}"), (499, b"")])
def test_what_answers_in_an_stss_place_refuses_nobody(status: int, body: bytes) -> None:
    error = explain_refusal(status, HEADERS, body, where="here", now=NOW)
    assert isinstance(error, TryAgain)
    assert "this is no STS: check the profile's stsEndpoint" in str(error)


def test_a_refusal_under_a_wrong_clock_says_so() -> None:
    body, late = a_refusal("InvalidParameterValue", "Token is not valid yet"), NOW + timedelta(minutes=30)
    assert "set this machine's clock" in str(explain_refusal(400, HEADERS, body, where="here", now=late))
    assert "set this machine's clock" not in str(explain_refusal(400, HEADERS, body, where="here", now=NOW))


def test_a_token_that_the_server_repeats_is_not_passed_on() -> None:
    """Audit: S17"""
    token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"
    body = a_refusal("InvalidIdentityToken", f"the token {token} is wrong")
    told = str(explain_refusal(400, HEADERS, body, where="here", now=NOW))
    assert "the token <token> is wrong" in told
    assert not any(part in told for part in token.split("."))


def test_control_characters_of_a_message_do_not_reach_a_terminal() -> None:
    told = str(explain_refusal(400, HEADERS, a_refusal("X", "a&#10;b\x9bc"), where="here", now=NOW))
    assert "a?b?c" in told


Respond = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def a_server(respond: Respond) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Logs nothing."""

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            respond(self)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


def an_exchange(endpoint: str, tmp_path: Path, token: bytes = b"a-token") -> TokenExchange:
    (tmp_path / "token").write_bytes(token)
    return TokenExchange(WebIdentity(endpoint, tmp_path / "token"), TrustedPool(None))


def test_an_endless_answer_is_cut(tmp_path: Path) -> None:
    sent = 0

    def respond(handler: BaseHTTPRequestHandler) -> None:
        nonlocal sent
        handler.send_response(200)
        handler.end_headers()
        try:
            while sent < 64 * 1024 * 1024:
                handler.wfile.write(b"<a>" * 1024)
                sent += 3 * 1024
        except OSError:
            return

    with a_server(respond) as endpoint, pytest.raises(TryAgain, match=f"more than {MAX_ANSWER_BYTES} bytes"):
        an_exchange(endpoint, tmp_path).obtain(20)
    assert sent < 16 * 1024 * 1024  # what lay in buffers


def test_a_trickle_ends_with_the_deadline(tmp_path: Path) -> None:
    go_on = threading.Event()

    def respond(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not go_on.wait(0.05):
            try:
                handler.wfile.write(b"<")
            except OSError:
                return

    began = time.monotonic()
    with a_server(respond) as endpoint:
        with pytest.raises(TryAgain, match="not whole in time"):
            an_exchange(endpoint, tmp_path).obtain(0.5)
        go_on.set()
    assert time.monotonic() - began < 30


def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    """Audit: S6"""

    def respond(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(307)
        handler.send_header("Location", "http://169.254.169.254/latest/meta-data/")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with a_server(respond) as endpoint, pytest.raises(StoreDenied, match="307, a redirect, which is refused"):
        an_exchange(endpoint, tmp_path).obtain(20)


@pytest.mark.parametrize(
    "token, found", [(b"", "nothing"), (b"x" * 70_000, "more than 65536"), (b"\xff\xfe", "no ASCII")]
)
def test_a_token_file_of_something_else_is_named_and_sent_nowhere(tmp_path: Path, token: bytes, found: str) -> None:
    with pytest.raises(StoreDenied, match=found):
        an_exchange("http://127.0.0.1:9/", tmp_path, token).obtain(1)


def test_a_store_that_refuses_an_ended_token_with_400_as_aws_does_is_understood() -> None:
    body = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
    error = explain_failure(400, {"x-amz-request-id": "1"}, body, where="here")
    assert isinstance(error, StoreDenied) and error.of_key
