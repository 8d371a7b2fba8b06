"""Requests to an S3 server by the standard library alone, as an attacker writes them: any header, any parameter.

A client library would not send a parameter twice, or a header that belongs to nobody. This file also runs by itself in
pods, so it imports nothing of the project.
"""

import hashlib
import hmac
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

REGION = "us-east-1"
TIMEOUT_S = 30.0
MOST_BYTES = 1 << 20
Query = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Answer:
    """An HTTP answer: its status, 0 where there was none, and the beginning of its body."""

    status: int
    body: str

    @property
    def code(self) -> str:
        """S3's or STS's error code, empty where the body names none."""
        found = re.search(r"<Code>([^<]*)</Code>", self.body)
        return found.group(1) if found else ""


@dataclass(frozen=True)
class Key:
    """Credentials; `token` of temporary ones."""

    access: str
    secret: str
    token: str = ""


@dataclass(frozen=True)
class RawS3:
    """A server: `http://host:port` or `https://…`, and the authority of its certificate."""

    url: str
    ca_file: str | None = None

    def exchange(self, web_token: str, role: str, *, policy: str = "", duration_s: int = 0) -> tuple[Answer, Key]:
        """Asks STS for credentials; the key is empty where it gives none."""
        form = {"Action": "AssumeRoleWithWebIdentity", "Version": "2011-06-15", "WebIdentityToken": web_token}
        form |= {"RoleArn": role, "RoleSessionName": "raw"}
        form |= {"Policy": policy} if policy else {}
        form |= {"DurationSeconds": str(duration_s)} if duration_s else {}
        body = urllib.parse.urlencode({name: value for name, value in form.items() if value}).encode()
        answer = self.send("POST", "/", body=body, headers={"Content-Type": "application/x-www-form-urlencoded"})
        found = [
            re.search(f"<{name}>([^<]*)<", answer.body) for name in ("AccessKeyId", "SecretAccessKey", "SessionToken")
        ]
        return answer, Key(*(match.group(1) if match else "" for match in found))

    def signed(
        self,
        key: Key,
        method: str,
        path: str,
        query: Query = (),
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Sends a request signed by `key`, all its headers included; `path` begins with the bucket."""
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        sent = {
            "host": urllib.parse.urlsplit(self.url).netloc, "x-amz-date": now,
            "x-amz-content-sha256": hashlib.sha256(body).hexdigest(),
            **({"x-amz-security-token": key.token} if key.token else {}),
            **{name.lower(): value for name, value in (headers or {}).items()},
        }  # fmt: skip
        names = ";".join(sorted(sent))
        lines = [method, _quoted(f"/{path}", "/~"), _query(sorted(query, key=lambda each: each[0]))]
        lines += [f"{name}:{sent[name]}" for name in sorted(sent)]
        canonical = "\n".join([*lines, "", names, sent["x-amz-content-sha256"]])
        scope = f"{now[:8]}/{REGION}/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        signature = hmac.digest(_signing_key(key.secret, now[:8]), text.encode(), "sha256").hex()
        sent["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={key.access}/{scope}, SignedHeaders={names}, Signature={signature}"
        )
        return self.send(method, f"/{path}", query, body=body, headers={**sent, **(headers or {})})

    def presigned(self, key: Key, path: str, *, seconds: int = 600) -> Answer:
        """Makes a link that gets an object without a key, and follows it."""
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        scope = f"{now[:8]}/{REGION}/s3/aws4_request"
        query = {
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256", "X-Amz-Credential": f"{key.access}/{scope}", "X-Amz-Date": now,
            "X-Amz-Expires": str(seconds), "X-Amz-SignedHeaders": "host",
            **({"X-Amz-Security-Token": key.token} if key.token else {}),
        }  # fmt: skip
        host = urllib.parse.urlsplit(self.url).netloc
        lines = ["GET", _quoted(f"/{path}", "/~"), _query(sorted(query.items()))]
        canonical = "\n".join([*lines, f"host:{host}", "", "host", "UNSIGNED-PAYLOAD"])
        text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        signature = hmac.digest(_signing_key(key.secret, now[:8]), text.encode(), "sha256").hex()
        return self.send("GET", f"/{path}", [*sorted(query.items()), ("X-Amz-Signature", signature)])

    def send(
        self,
        method: str,
        path: str,
        query: Query = (),
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Answer:
        """Sends a request as it is; status 0 and the error's text where nobody answers. Follows no redirect."""
        address = f"{self.url}{_quoted(path, '/~')}" + (f"?{_query(query)}" if query else "")
        request = urllib.request.Request(address, data=body or None, headers=dict(headers or {}), method=method)
        context = ssl.create_default_context(cafile=self.ca_file) if self.url.startswith("https") else None
        opener = urllib.request.build_opener(_NoRedirect(), urllib.request.HTTPSHandler(context=context))
        try:
            with opener.open(request, timeout=timeout_s) as response:
                return Answer(response.status, response.read(MOST_BYTES).decode(errors="replace"))
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.read(MOST_BYTES).decode(errors="replace"))
        except (urllib.error.URLError, OSError) as error:
            return Answer(0, str(error))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def _signing_key(secret: str, day: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (day, REGION, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def _query(query: Query) -> str:
    return "&".join(f"{_quoted(name, '~')}={_quoted(value, '~')}" for name, value in query)


def _quoted(text: str, safe: str) -> str:
    return urllib.parse.quote(text, safe=f"-_.{safe}")
