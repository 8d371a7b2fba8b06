"""Exchanges a token file for temporary S3 credentials: STS AssumeRoleWithWebIdentity, one request a call.

The token is read at every exchange, because the kubelet replaces it. It goes in the body of a POST, so that no proxy's
log of addresses holds it. No redirect is followed, an answer has at most MAX_ANSWER_BYTES, no message holds a token.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode

import urllib3

from lead_protocol.store.object_store import StoreDenied
from lead_protocol.store.renewed_credentials import Session
from lead_protocol.store.s3_answers import TryAgain
from lead_protocol.store.sts_answers import MAX_ANSWER_BYTES, explain_refusal, parse_session
from lead_protocol.store.trusted_pool import TrustedPool, Untrusted, ended_by_the_server

DURATION_S = 3600  # asked for; an STS may give less, and nothing longer is used
CONNECT_S = 5.0
MAX_TOKEN_FILE_BYTES = 64 * 1024
_STS_VERSION = "2011-06-15"


@dataclass(frozen=True)
class WebIdentity:
    """Whose credentials to ask for, and where."""

    sts_endpoint: str  # URL
    token_file: Path
    role_arn: str = ""  # empty where the STS asks for none
    session_name: str = "lead"  # of AWS's audit log
    session_policy: str = field(default="", repr=False)  # narrows the role further; empty: the whole role
    profile: str = ""  # of storage, for messages

    @property
    def source(self) -> str:
        """Whose credentials these are, for messages."""
        role = f"role {self.role_arn}" if self.role_arn else "no role ARN"
        narrowed = f" narrowed to {self.session_name}" if self.session_policy else ""
        profile = f", storage profile {self.profile}" if self.profile else ""
        return f"webIdentity credentials ({role}{narrowed}, STS {self.sts_endpoint}{profile})"


class TokenExchange:
    """Obtains sessions of one WebIdentity; safe between threads."""

    def __init__(
        self,
        identity: WebIdentity,
        pool: TrustedPool,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._identity, self._pool, self._clock = identity, pool, clock

    def obtain(self, timeout_s: float) -> Session:
        """Asks once, within `timeout_s`; raises TryAgain, or StoreDenied where a person may have to act."""
        identity = self._identity
        where = f"{identity.source}, token of {identity.token_file}"
        body = urlencode(self._parameters()).encode()
        end = time.monotonic() + timeout_s
        pool = self._pool.get()
        try:
            return self._asked(pool, body, end, where)
        except Untrusted:
            if not self._pool.reload(pool):
                raise
        return self._asked(self._pool.get(), body, end, where)

    def _parameters(self) -> dict[str, str]:
        identity = self._identity
        optional = {"RoleArn": identity.role_arn, "Policy": identity.session_policy}
        return {
            "Action": "AssumeRoleWithWebIdentity",
            "Version": _STS_VERSION,
            "DurationSeconds": str(DURATION_S),
            "RoleSessionName": identity.session_name,
            "WebIdentityToken": _read_token(identity.token_file),
            **{name: value for name, value in optional.items() if value},
        }

    def _asked(self, pool: urllib3.PoolManager, body: bytes, end: float, where: str) -> Session:
        try:
            status, headers, answer = self._answer(pool, body, end, where)
        except urllib3.exceptions.SSLError as error:
            if ended_by_the_server(error):
                raise TryAgain(f"{where}: no answer ({error})", uncertain=False) from error
            remedy = "check `ca.crt` and the host name of the STS"
            raise Untrusted(f"{where}: TLS failed ({error}); {remedy}", of_key=True) from error
        except urllib3.exceptions.HTTPError as error:
            raise TryAgain(f"{where}: no answer ({error})", uncertain=False) from error
        now = self._clock()
        if status != 200:
            raise explain_refusal(status, headers, answer, where=where, now=now)
        return parse_session(headers, answer, asked_s=DURATION_S, where=where, now=now)

    def _answer(
        self, pool: urllib3.PoolManager, body: bytes, end: float, where: str
    ) -> tuple[int, Mapping[str, str], bytes]:
        left_s = max(0.1, end - time.monotonic())
        response = pool.urlopen(
            "POST", self._identity.sts_endpoint, body=body, retries=False, redirect=False, preload_content=False,
            headers={"Content-Type": "application/x-www-form-urlencoded", "Content-Length": str(len(body))},
            timeout=urllib3.Timeout(connect=min(CONNECT_S, left_s), read=left_s),
        )  # fmt: skip
        try:
            return response.status, response.headers, _bounded(response, end, where)
        except BaseException:
            response.close()
            raise
        finally:
            response.release_conn()


def _bounded(response: urllib3.BaseHTTPResponse, end: float, where: str) -> bytes:
    pieces, found = [], 0
    while piece := response.read1(MAX_ANSWER_BYTES):
        pieces.append(piece)
        found += len(piece)
        if found > MAX_ANSWER_BYTES:
            raise TryAgain(
                f"{where}: the answer has more than {MAX_ANSWER_BYTES} bytes; is this an STS?", uncertain=False
            )
        if time.monotonic() > end:
            raise TryAgain(f"{where}: the answer was not whole in time", uncertain=False)
    return b"".join(pieces)


def _read_token(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            token = opened.read(MAX_TOKEN_FILE_BYTES + 1).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no ASCII text"
        raise StoreDenied(
            f"the token file {file} cannot be read: {reason}; check the pod's projected ServiceAccount token",
            of_key=True,
        ) from error
    if not token or len(token) > MAX_TOKEN_FILE_BYTES:
        found = f"more than {MAX_TOKEN_FILE_BYTES} characters" if token else "nothing"
        raise StoreDenied(
            f"the token file {file} holds {found}; check the pod's projected ServiceAccount token", of_key=True
        )
    return token
