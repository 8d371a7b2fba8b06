"""Issues ServiceAccount tokens as a kube-apiserver does, and serves its discovery document and keys over 127.0.0.1.

with TokenIssuer() as issuer, MinioServer(program, folder, issuer.minio_environment("lead-pods")) as server:
    token = issuer.token("team-a", "lead-run")
"""

import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from Crypto.Hash import SHA256
from Crypto.PublicKey import RSA
from Crypto.Signature import pkcs1_15

from lead_testing.loopback_server import LoopbackServer

AUDIENCE = "lead-store"
CLIENT_SECRET = "a-secret-of-the-tests"  # what MinIO takes as a key of tokens signed by HMAC: never empty
# MinIO's name for the role of a provider: made of its client ID, in a server without a site region.
ROLE_ARN = (
    f"arn:minio:iam:::role/{base64.urlsafe_b64encode(hashlib.sha1(AUDIENCE.encode()).digest()).decode().rstrip('=')}"
)
KEY_BITS = 2048
DISCOVERY_PATH = "/.well-known/openid-configuration"
KEYS_PATH = "/openid/v1/jwks"


class TokenIssuer(LoopbackServer):
    """An OIDC issuer; `rotate` replaces its key, `close` takes it off the network."""

    def __init__(self) -> None:
        self._keys: dict[str, RSA.RsaKey] = {}
        self._signs_with = ""
        self.rotate()
        super().__init__(_handler(self))

    @property
    def url(self) -> str:
        """The issuer: claim `iss` of its tokens."""
        return f"http://{self.endpoint}"

    def minio_environment(self, *role_policies: str, audience: str = AUDIENCE) -> dict[str, str]:
        """Returns the variables that let a MinIO take these tokens; the role has the named policies."""
        return {
            "MINIO_IDENTITY_OPENID_CONFIG_URL": f"{self.url}{DISCOVERY_PATH}",
            "MINIO_IDENTITY_OPENID_CLIENT_ID": audience,
            "MINIO_IDENTITY_OPENID_CLIENT_SECRET": CLIENT_SECRET,
            "MINIO_STS_DURATION": "1h",  # of credentials, whatever a request asks for
            "MINIO_IDENTITY_OPENID_ROLE_POLICY": ",".join(role_policies),
        }

    def rotate(self) -> None:
        """Signs with a new key from now on; the old one is published no more."""
        self._signs_with = secrets.token_urlsafe(16)
        self._keys = {self._signs_with: RSA.generate(KEY_BITS)}

    def token(
        self,
        namespace: str,
        service_account: str,
        *,
        audience: str = AUDIENCE,
        lives_s: float = 3600,
        issued_at: float | None = None,
        pod: str = "",
        claims: Mapping[str, Any] | None = None,
    ) -> str:
        """Returns a signed token; `issued_at` in seconds since the epoch (default: now), `claims` replace its own."""
        begin = int(time.time() if issued_at is None else issued_at)
        kubernetes: dict[str, Any] = {
            "namespace": namespace,
            "serviceaccount": {"name": service_account, "uid": "0e7c7a3c-5d0c-4c56-8f27-4f6f6a9e1f11"},
        }
        if pod:
            kubernetes["pod"] = {"name": pod, "uid": "8e1a5a9e-0d5e-4f2b-9d77-63a8a2f4f7ce"}
        own = {
            "aud": [audience],
            "exp": begin + int(lives_s),
            "iat": begin,
            "iss": self.url,
            "jti": secrets.token_hex(16),
            "kubernetes.io": kubernetes,
            "nbf": begin,
            "sub": f"system:serviceaccount:{namespace}:{service_account}",
        }
        signed = f"{_encoded({'alg': 'RS256', 'kid': self._signs_with})}.{_encoded({**own, **(claims or {})})}"
        signature = pkcs1_15.new(self._keys[self._signs_with]).sign(SHA256.new(signed.encode()))
        return f"{signed}.{_base64(signature)}"

    def forged_token(self, kid: str, secret: bytes, namespace: str, service_account: str) -> str:
        """Returns a token that is signed by a shared secret, which an API server never does."""
        body = self.token(namespace, service_account).split(".")[1]
        signed = f"{_encoded({'alg': 'HS256', 'kid': kid})}.{body}"
        return f"{signed}.{_base64(hmac.digest(secret, signed.encode(), 'sha256'))}"

    def unsigned_token(self, namespace: str, service_account: str) -> str:
        """Returns a token of the algorithm `none`, as if by the key that signs now."""
        body = self.token(namespace, service_account).split(".")[1]
        return f"{_encoded({'alg': 'none', 'kid': self._signs_with})}.{body}."

    def write_token(self, file: Path, namespace: str, service_account: str, **how: Any) -> str:
        """Writes a token where a pod finds it, atomically as the kubelet does, and returns it."""
        text = self.token(namespace, service_account, **how)
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
        unfinished.write_text(text)
        unfinished.replace(file)
        return text

    def document(self, path: str) -> dict[str, Any] | None:
        """Returns what is served below a path, None where nothing is."""
        if path == DISCOVERY_PATH:
            return {
                "issuer": self.url,
                "jwks_uri": f"{self.url}{KEYS_PATH}",
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
            }
        if path == KEYS_PATH:
            return {"keys": [_public(name, key) for name, key in self._keys.items()]}
        return None


def _handler(issuer: TokenIssuer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Logs nothing."""

        def do_GET(self) -> None:
            found = issuer.document(self.path)
            body = json.dumps(found or {}).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def _public(name: str, key: RSA.RsaKey) -> dict[str, str]:
    return {"use": "sig", "kty": "RSA", "kid": name, "alg": "RS256", "n": _number(key.n), "e": _number(key.e)}


def _number(number: int) -> str:
    return _base64(number.to_bytes((number.bit_length() + 7) // 8, "big"))


def _encoded(document: Mapping[str, Any]) -> str:
    return _base64(json.dumps(document).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
