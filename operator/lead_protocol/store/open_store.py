"""Opens the store that the environment names; called once a process by operator and trainer.

    LEAD_STORE_URL   file:///folder, or s3://bucket/prefix with
    LEAD_S3_ENDPOINT host:port, LEAD_S3_SECURE true|false (default true), LEAD_S3_REGION (default us-east-1)

S3 credentials are the files `access-key` and `secret-key` (and optionally `ca.crt`) of the credentials folder, which
are read again when the store refuses them, or, where that folder does not exist (a laptop), AWS_ACCESS_KEY_ID and
AWS_SECRET_ACCESS_KEY.
"""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lead_protocol import environment as names
from lead_protocol.store.address_rules import BUCKET, ENDPOINT
from lead_protocol.store.folder import FolderStore
from lead_protocol.store.key_rules import UnsafeKey, check_prefix
from lead_protocol.store.object_store import ObjectStore, StoreError
from lead_protocol.store.s3 import S3Store
from lead_protocol.store.s3_target import KeyPair, S3Limits, S3Target

DEFAULT_REGION = "us-east-1"


class StoreNotConfigured(StoreError):
    """A variable or file is missing or wrong; the message names it, what was found and what is expected."""


def open_store(
    environ: Mapping[str, str], *, credentials_dir: Path | None = None, limits: S3Limits | None = None
) -> ObjectStore:
    """Returns the store that `environ` names; makes no request; raises StoreNotConfigured naming what is missing."""
    url = environ.get(names.STORE_URL, "")
    parts = urlsplit(url)
    if parts.scheme == "file":
        return FolderStore(_folder(url, unquote(parts.path), parts.netloc))
    if parts.scheme == "s3":
        folder = credentials_dir or Path(names.CREDENTIALS_DIR)
        return S3Store(s3_target(environ, credentials_dir=folder), limits)
    raise _wrong(names.STORE_URL, url, "file:///folder or s3://bucket/prefix")


def s3_target(environ: Mapping[str, str], *, credentials_dir: Path) -> S3Target:
    """Reads an S3 target from variables and credential files; raises StoreNotConfigured naming what is missing."""
    url = environ.get(names.STORE_URL, "")
    parts = urlsplit(url)
    bucket, prefix = parts.netloc, parts.path.strip("/")
    if parts.scheme != "s3" or not re.fullmatch(BUCKET, bucket):
        raise _wrong(names.STORE_URL, url, "s3://bucket/prefix with a bucket name of 3 to 63 of a-z, 0-9, `.`, `-`")
    try:
        check_prefix(prefix)
    except UnsafeKey as error:
        raise _wrong(names.STORE_URL, url, f"a safe prefix: {error}") from error
    endpoint = environ.get(names.STORE_ENDPOINT, "")
    if not re.fullmatch(ENDPOINT, endpoint):
        raise _wrong(names.STORE_ENDPOINT, endpoint, "host:port, without http://")
    secure = environ.get(names.STORE_SECURE) or "true"
    if secure not in ("true", "false"):
        raise _wrong(names.STORE_SECURE, secure, "true or false")
    access_key, secret_key = _credentials(environ, credentials_dir)
    ca_file = credentials_dir / Path(names.CA_FILE).name
    return S3Target(
        endpoint=endpoint,
        bucket=bucket,
        prefix=prefix,
        access_key=access_key,
        secret_key=secret_key,
        secure=secure == "true",
        region=environ.get(names.STORE_REGION) or DEFAULT_REGION,
        ca_file=ca_file if ca_file.is_file() else None,
        read_again=partial(_mounted, credentials_dir) if credentials_dir.is_dir() else None,
    )


def _folder(url: str, path: str, host: str) -> Path:
    if host or not path.startswith("/") or "\0" in path:
        raise _wrong(names.STORE_URL, url, "file:/// and an absolute folder")
    return Path(path)


def _credentials(environ: Mapping[str, str], folder: Path) -> KeyPair:
    if folder.is_dir():
        return _mounted(folder)
    found = environ.get("AWS_ACCESS_KEY_ID", ""), environ.get("AWS_SECRET_ACCESS_KEY", "")
    if not all(found):
        raise StoreNotConfigured(
            f"no S3 credentials: the folder {folder} does not exist, and AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY "
            "are not both set; mount the storage profile's Secret there, or set both variables"
        )
    return found


def _mounted(folder: Path) -> KeyPair:
    return _read(folder / "access-key"), _read(folder / "secret-key")


def _read(path: Path) -> str:
    try:
        found = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StoreNotConfigured(
            f"cannot read the credential file {path}: {error}; check the profile's Secret"
        ) from error
    if not found:
        raise StoreNotConfigured(f"the credential file {path} is empty; check the storage profile's Secret")
    return found


def _wrong(name: str, found: str, expected: str) -> StoreNotConfigured:
    state = f"is {found!r}" if found else "is not set"
    return StoreNotConfigured(f"environment variable {name} {state}; expected {expected}")
