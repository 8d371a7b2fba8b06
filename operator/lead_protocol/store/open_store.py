"""Opens the store that the environment names; called once a process by operator and trainer.

    LEAD_STORE_URL   file:///folder, or s3://bucket/prefix with
    LEAD_S3_ENDPOINT host:port, LEAD_S3_SECURE true|false (default true), LEAD_S3_REGION (default us-east-1),
                     LEAD_S3_ADDRESSING path|virtualHost (default path)

Credentials: `credentials_chain`. The file `ca.crt` of the credentials folder is the store's authority, if it is there;
where that folder does not exist (a laptop), the file that AWS_CA_BUNDLE names.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lead_protocol import environment as names
from lead_protocol.store.address_rules import BUCKET, ENDPOINT, expected_addressing
from lead_protocol.store.credentials_chain import StoreNotConfigured, credentials_from
from lead_protocol.store.credentials_chain import wrong_variable as _wrong
from lead_protocol.store.folder import FolderStore
from lead_protocol.store.key_rules import UnsafeKey, check_prefix
from lead_protocol.store.object_store import ObjectStore
from lead_protocol.store.s3 import S3Store
from lead_protocol.store.s3_target import S3Limits, S3Target
from lead_protocol.store.session_policy import Access, session_policy

DEFAULT_REGION = "us-east-1"


__all__ = ["StoreNotConfigured", "open_store", "s3_target"]


def open_store(
    environ: Mapping[str, str],
    *,
    credentials_dir: Path | None = None,
    limits: S3Limits | None = None,
    access: Access | None = None,
) -> ObjectStore:
    """Returns the store that `environ` names; makes no request; raises StoreNotConfigured naming what is missing.

    `access`: all that the process needs; temporary credentials are narrowed to it.
    """
    url = environ.get(names.STORE_URL, "")
    parts = urlsplit(url)
    if parts.scheme == "file":
        return FolderStore(_folder(url, unquote(parts.path), parts.netloc))
    if parts.scheme == "s3":
        folder = credentials_dir or Path(names.CREDENTIALS_DIR)
        return S3Store(s3_target(environ, credentials_dir=folder, access=access), limits)
    raise _wrong(names.STORE_URL, url, "file:///folder or s3://bucket/prefix")


def s3_target(environ: Mapping[str, str], *, credentials_dir: Path, access: Access | None = None) -> S3Target:
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
    addressing = environ.get(names.STORE_ADDRESSING) or "path"
    if expected := expected_addressing(addressing, endpoint=endpoint, bucket=bucket, secure=secure == "true"):
        raise _wrong(names.STORE_ADDRESSING, addressing, expected)
    target = S3Target(
        endpoint=endpoint,
        bucket=bucket,
        prefix=prefix,
        secure=secure == "true",
        region=environ.get(names.STORE_REGION) or DEFAULT_REGION,
        addressing=addressing,
        ca_file=_ca_file(environ, credentials_dir),
    )
    provider = credentials_from(
        environ,
        folder=credentials_dir,
        store_origin=target.origin,
        session_policy=session_policy(access, bucket, prefix) if access else "",
        session_name=access.name if access else "",
        ca_file=target.ca_file,
    )
    return replace(target, provider=provider)


def _ca_file(environ: Mapping[str, str], credentials_dir: Path) -> Path | None:
    if credentials_dir.is_dir():
        return credentials_dir / Path(names.CA_FILE).name
    bundle = environ.get("AWS_CA_BUNDLE", "")
    return Path(bundle) if bundle else None


def _folder(url: str, path: str, host: str) -> Path:
    if host or not path.startswith("/") or "\0" in path:
        raise _wrong(names.STORE_URL, url, "file:/// and an absolute folder")
    return Path(path)
