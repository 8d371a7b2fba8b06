"""Signed S3 requests with deadlines, classified errors and bounded jittered retries; called by `s3.py` alone.

Requests are signed by `minio.signer` and sent through one urllib3 pool, because minio-py's own methods have no
conditional writes and no total deadline. It follows no redirect, reads no proxy variable, and puts no credential in a
message.
"""

import hashlib
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import quote, urlencode, urlsplit

import urllib3
from minio import time as minio_time
from minio.credentials.credentials import Credentials as SignerCredentials
from minio.signer import sign_v4_s3
from urllib3.response import BaseHTTPResponse

from lead_protocol.store.credentials import Credentials
from lead_protocol.store.object_store import ObjectCorrupt, StoreDenied, StoreUnavailable
from lead_protocol.store.s3_answers import TryAgain, check_success, explain_failure
from lead_protocol.store.s3_keys import SigningKey
from lead_protocol.store.s3_target import S3Limits, S3Target
from lead_protocol.store.trusted_pool import TrustedPool, Untrusted, ended_by_the_server

READ_BYTES = 256 * 1024  # so few that the next ones lie in the same memory
PROGRESS_BYTES = 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
_Result = TypeVar("_Result")


class Deadline:
    """When a call must have ended; a long one ends earlier when nothing of it comes or goes for a while."""

    def __init__(self, total_s: float, piece_s: float | None = None) -> None:
        """`piece_s`: the longest time from one `progress` to the next, if that is not `total_s`."""
        self.piece_s = total_s if piece_s is None else min(piece_s, total_s)
        self._total_s = total_s
        self.begin_again()

    def begin_again(self) -> None:
        """Gives the call its whole time from now, because it has waited for something else than the store."""
        begin = time.monotonic()
        self._end, self._last = begin + self.piece_s, begin + self._total_s

    def progress(self) -> None:
        """Notes that PROGRESS_BYTES have come or a part has gone, which gives the next its whole time."""
        self._end = min(self._last, time.monotonic() + self.piece_s)

    def remaining_s(self) -> float:
        """Seconds left; negative when it has passed."""
        return self._end - time.monotonic()


@dataclass(frozen=True)
class Request:
    """One request on an object (`key` with the store's prefix) or, with an empty key, on the bucket."""

    method: str
    key: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    also_expected: tuple[int, ...] = ()  # statuses beside 2xx that are an answer, not a failure


@dataclass(frozen=True)
class Answer:
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _CutOff(TryAgain):
    """The call's own deadline ended the try before any response came, so it is no evidence about the store."""


class SignedRequests:
    """Sends requests to one target; safe between threads, and in a forked child (which gets a pool of its own)."""

    def __init__(self, target: S3Target, limits: S3Limits) -> None:
        self._target = target
        self._limits = limits
        self._key = SigningKey(target.credentials, limits)
        self._pool = TrustedPool(target.ca_file)
        self._jitter = random.Random()  # own generator: the global one belongs to the training's reproducibility

    def where(self, request: Request) -> str:
        """Names a request for messages."""
        return f"{request.method} s3://{self._target.bucket}/{request.key} at {self._target.authority}"

    def call(self, request: Request, deadline: Deadline, *, max_bytes: int) -> Answer:
        """Sends a request that may be repeated, until it has a good answer; raises a StoreError otherwise."""
        return self.retrying(lambda: self.send(request, deadline, max_bytes=max_bytes), deadline, self.where(request))

    def send(self, request: Request, deadline: Deadline, *, max_bytes: int) -> Answer:
        """Sends a request once; raises TryAgain, a StoreError, or ObjectCorrupt for an answer over `max_bytes`."""
        with self.stream(request, deadline) as (response, chunks):
            promised = int(response.headers.get("Content-Length") or 0) if request.method != "HEAD" else 0
            pieces, found = [], promised
            if promised <= max_bytes:
                found = 0
                for chunk in chunks:
                    pieces.append(chunk)
                    found += len(chunk)
                    if found > max_bytes:
                        break
            if found > max_bytes:
                response.close()
                raise ObjectCorrupt(f"{self.where(request)} has {found} bytes or more, expected at most {max_bytes}")
            return Answer(response.status, response.headers, b"".join(pieces))

    @contextmanager
    def stream(self, request: Request, deadline: Deadline) -> Iterator[tuple[BaseHTTPResponse, Iterator[bytes]]]:
        """Sends a request once and yields its good answer with the chunks of its body still to be read."""
        where, sent_at, pool = self.where(request), time.monotonic(), self._pool.get()
        try:
            response = self._open(request, deadline, pool)
            try:
                if not (200 <= response.status < 300 or response.status in request.also_expected):
                    body = b"" if request.method == "HEAD" else (response.read(MAX_ERROR_BYTES) or b"")
                    raise self._with_source(
                        explain_failure(
                            response.status, response.headers, body, where=where, signed_at=minio_time.utcnow()
                        )
                    )
                if request.key and request.method != "POST" and response.status < 300:  # of others, the XML decides
                    check_success(request.method, response.headers, where=where)
                self._key.accepted(sent_at)
                yield response, _chunks(response, deadline, where)
            except BaseException:
                response.close()  # half-read: the connection cannot be used again
                raise
            finally:
                response.release_conn()
        except urllib3.exceptions.SSLError as error:
            if ended_by_the_server(error):
                raise TryAgain(f"{where}: the connection ended in TLS ({_cause(error)})", uncertain=True) from error
            denial = Untrusted(
                f"{where}: TLS failed ({_cause(error)}); check `ca.crt`, host name and `secure`", of_key=True
            )
            if self._pool.reload(pool):
                raise TryAgain(str(denial), uncertain=False) from error
            raise denial from error
        except (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError) as error:
            raise _try_again(error, deadline)(f"{where}: no connection ({_cause(error)})", uncertain=False) from error
        except urllib3.exceptions.HTTPError as error:
            raise _try_again(error, deadline)(
                f"{where}: {type(error).__name__} ({_cause(error)})", uncertain=True
            ) from error

    def retrying(self, attempt: Callable[[], _Result], deadline: Deadline, where: str) -> _Result:
        """Repeats `attempt` while it raises TryAgain, with growing jittered pauses; then raises StoreUnavailable.

        It reports the last failure of the store itself: the last try may begin with no time left, and that it
        ended explains nothing. A denied one is repeated too, while the refused key may have a successor.
        """
        tries, refused_at, reason = 0, None, ""
        while True:
            tries += 1
            used = self._key.latest
            try:
                return attempt()
            except StoreDenied as denial:
                refused_at = time.monotonic() if refused_at is None else refused_at
                if not self._key.may_try_again(used, denial, refused_at):
                    raise
                deadline.begin_again()
            except TryAgain as failure:
                if not reason or not isinstance(failure, _CutOff):
                    reason = str(failure)  # not the failure itself, whose traceback would keep the body alive
                pause_s = max(min(failure.pause_s, self._limits.longest_retry_after_s), self._pause_s(tries))
                if pause_s >= deadline.remaining_s():
                    raise StoreUnavailable(
                        f"{where} had no good answer within {deadline.piece_s:.0f} s and {tries} tries; the last: "
                        f"{reason}; check that the store runs and is reachable"
                    ) from failure
                time.sleep(pause_s)

    def _pause_s(self, tries: int) -> float:
        full = min(self._limits.longest_pause_s, self._limits.first_pause_s * 2.0 ** min(tries - 1, 16))
        return full * self._jitter.uniform(0.5, 1.0)

    def _with_source(self, failure: Exception) -> Exception:
        """Returns a failure that, if it is a denial, also names the credentials that signed the request."""
        if type(failure) is not StoreDenied:
            return failure
        return StoreDenied(f"{failure}; signed by {self._key.source}", of_key=failure.of_key)

    def _open(self, request: Request, deadline: Deadline, pool: urllib3.PoolManager) -> BaseHTTPResponse:
        left_s = deadline.remaining_s()
        if left_s <= 0:
            raise _CutOff(f"{self.where(request)}: the deadline passed before it was sent", uncertain=False)
        url, headers = self._sign(request, self._key.current(left_s))
        left_s = max(deadline.remaining_s(), 0.1)
        timeout = urllib3.Timeout(connect=min(self._limits.connect_s, left_s), read=min(self._limits.read_s, left_s))
        return pool.urlopen(
            request.method, url, body=request.body or None, headers=headers, timeout=timeout,
            retries=False, redirect=False, preload_content=False,
            decode_content=False,  # what is stored is read as it is, whatever encoding its writer claimed
        )  # fmt: skip

    def _sign(self, request: Request, credentials: Credentials) -> tuple[str, dict[str, str]]:
        query = urlencode(sorted(request.query.items()), quote_via=quote, safe="-_.~")
        url = urlsplit(self._target.request_url(request.key) + (f"?{query}" if query else ""))
        now, digest = minio_time.utcnow(), hashlib.sha256(request.body).hexdigest()
        headers = {
            **request.headers,
            "Host": url.netloc,
            "x-amz-date": minio_time.to_amz_date(now),
            "x-amz-content-sha256": digest,  # the server checks the body against it, over plain HTTP too
        }
        if credentials.session_token:
            headers["x-amz-security-token"] = credentials.session_token
        if request.body or request.method in ("PUT", "POST"):
            headers["Content-Length"] = str(len(request.body))
        signed = sign_v4_s3(
            method=request.method, url=url, region=self._target.region, headers=dict(headers),
            credentials=SignerCredentials(credentials.access_key, credentials.secret_key),
            content_sha256=digest, date=now,
        )  # fmt: skip
        return url.geturl(), {name: str(value) for name, value in signed.items()}


def _cause(error: Exception) -> str:
    """Returns the error's text without the addresses of Python objects, which are others at each try."""
    text = next((part for part in reversed(error.args) if isinstance(part, str)), str(error))
    return re.sub(r"<[^<>]* at 0x[0-9a-f]+>(: )?", "", text)


def _try_again(error: urllib3.exceptions.HTTPError, deadline: Deadline) -> type[TryAgain]:
    """Returns what a try raises; a connection that was refused is an answer, though to urllib3 it is a timeout."""
    waited = isinstance(error, urllib3.exceptions.TimeoutError)
    refused = isinstance(error, urllib3.exceptions.NewConnectionError)
    return _CutOff if waited and not refused and deadline.remaining_s() <= 0 else TryAgain


def _chunks(response: BaseHTTPResponse, deadline: Deadline, where: str) -> Iterator[bytes]:
    come = 0
    while chunk := response.read1(READ_BYTES):  # what has come: a trickle must not outlast the deadline
        come += len(chunk)
        if come >= PROGRESS_BYTES:
            come = 0
            deadline.progress()
        yield chunk
        if deadline.remaining_s() <= 0 and response.length_remaining != 0:
            raise TryAgain(f"{where}: the answer was not whole when the deadline passed", uncertain=True)
