"""Prepares the embedded MinIO: buckets, one policy and one user for pods and one for the operator, per storage profile.

Run by the chart's Job as `lead-operator storage-init`. Everything it does may be repeated: what exists stays, a rotated
secret key is set anew. It never deletes, and never touches a store that the chart did not bring.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import urllib3
from minio import Minio
from minio.credentials.providers import StaticProvider
from minio.error import MinioAdminException, S3Error
from minio.minioadmin import MinioAdmin

from lead_operator.errors import LeadOperatorError, SettingsError
from lead_operator.settings import StorageProfile, read_profiles

DEADLINE_S = 300.0
PAUSE_S = 1.0
_USERS = ("trainer", "operator")
_READ = ["s3:GetObject"]
_WRITE = ["s3:PutObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"]
_REMOVE = ["s3:DeleteObject"]


class StorageInitError(LeadOperatorError):
    """The store could not be prepared; the message names the store, the last answer and what to check."""


@dataclass(frozen=True)
class Account:
    """A user of the object store."""

    access_key: str
    secret_key: str = field(repr=False)


@dataclass(frozen=True)
class ProfileAccounts:
    """A storage profile on the embedded store and who uses it."""

    profile: StorageProfile
    trainer: Account
    operator: Account


def main() -> int:
    """Reads the environment and mounted files that the chart gives, prepares the store, returns the exit status."""
    try:
        root, wanted = read_request(os.environ)
        init_storage(wanted, root)
    except LeadOperatorError as error:
        print(f"lead-operator storage-init: {error}", file=sys.stderr)
        return 1
    for entry in wanted:
        print(f"storage profile {entry.profile.name}: {entry.profile.url} at {entry.profile.endpoint} is ready")
    return 0


def read_request(environment: Mapping[str, str]) -> tuple[Account, list[ProfileAccounts]]:
    """Returns the root account and what to prepare; raises SettingsError naming the variable, profile or file."""
    profiles = read_profiles(Path(_variable(environment, "LEAD_STORAGE_PROFILES_FILE")))
    folder = Path(_variable(environment, "LEAD_STORAGE_INIT_CREDENTIALS_DIR"))
    wanted = []
    for name in _variable(environment, "LEAD_STORAGE_INIT_PROFILES").split(","):
        if name not in profiles:
            raise SettingsError(f"LEAD_STORAGE_INIT_PROFILES names {name!r}; the profiles are {sorted(profiles)}")
        accounts = {user: _account(folder, f"{name}.{user}-access-key", f"{name}.{user}-secret-key") for user in _USERS}
        wanted.append(ProfileAccounts(profiles[name], **accounts))
    return _account(folder, "root-user", "root-password"), wanted


def init_storage(wanted: Sequence[ProfileAccounts], root: Account, *, deadline_s: float = DEADLINE_S) -> None:
    """Prepares every profile, waiting for its server where it does not answer yet; raises StorageInitError."""
    deadline = time.monotonic() + deadline_s
    for entry in wanted:
        _repeat(lambda entry=entry: _prepare(entry, root), entry.profile, deadline)  # type: ignore[misc]


def trainer_policy(profile: StorageProfile) -> dict[str, Any]:
    """Returns what pods may do: list, read and write below the prefix; never delete."""
    return _policy(profile)


def operator_policy(profile: StorageProfile) -> dict[str, Any]:
    """Returns what the operator may do: also delete what pods made of a user's data, for retention; never raw data."""
    return _policy(profile, removable=("runs/", "caches/", "builds/"))


def _policy(profile: StorageProfile, removable: tuple[str, ...] = ()) -> dict[str, Any]:
    bucket, below = f"arn:aws:s3:::{profile.bucket}", f"{profile.prefix}/" if profile.prefix else ""
    listing: dict[str, Any] = {"Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": [bucket]}
    if below:
        listing["Condition"] = {"StringLike": {"s3:prefix": [f"{below}*"]}}
    statements = [
        {"Effect": "Allow", "Action": ["s3:GetBucketLocation"], "Resource": [bucket]},
        listing,
        {"Effect": "Allow", "Action": [*_READ, *_WRITE], "Resource": [f"{bucket}/{below}*"]},
    ]
    if removable:
        below_each = [f"{bucket}/{below}{folder}*" for folder in removable]
        statements.append({"Effect": "Allow", "Action": _REMOVE, "Resource": below_each})
    return {"Version": "2012-10-17", "Statement": statements}


def _prepare(entry: ProfileAccounts, root: Account) -> None:
    profile = entry.profile
    pool = urllib3.PoolManager(retries=False, timeout=urllib3.Timeout(connect=5, read=30))
    endpoint, region = profile.endpoint, profile.region or "us-east-1"
    client = Minio(
        endpoint,
        access_key=root.access_key,
        secret_key=root.secret_key,
        secure=profile.secure,
        region=region,
        http_client=pool,
    )
    if not client.bucket_exists(profile.bucket):
        _ignoring_own_bucket(lambda: client.make_bucket(profile.bucket))
    admin = MinioAdmin(
        endpoint=endpoint,
        credentials=StaticProvider(root.access_key, root.secret_key),
        region=region,
        secure=profile.secure,
        http_client=pool,
    )
    for user, account, policy in (
        ("trainer", entry.trainer, trainer_policy(profile)),
        ("operator", entry.operator, operator_policy(profile)),
    ):
        name = f"lead-{profile.name}-{user}"
        admin.policy_add(name, policy=policy)
        admin.user_add(account.access_key, account.secret_key)
        admin.policy_set(name, user=account.access_key)


def _ignoring_own_bucket(make: Callable[[], None]) -> None:
    try:
        make()
    except S3Error as error:
        if error.code != "BucketAlreadyOwnedByYou":  # another try of this Job was faster
            raise


def _repeat(action: Callable[[], None], profile: StorageProfile, deadline: float) -> None:
    while True:
        try:
            return action()
        except (S3Error, MinioAdminException, urllib3.exceptions.HTTPError) as error:
            if not _may_pass(error) or time.monotonic() + PAUSE_S > deadline:
                raise StorageInitError(
                    f"object store {profile.endpoint} (storage profile {profile.name}) could not be prepared: {error}; "
                    "check that its pod is ready and that the root credentials in its Secret are those of its data"
                ) from error
            time.sleep(PAUSE_S)


def _may_pass(error: Exception) -> bool:
    if isinstance(error, S3Error):
        return error.response.status >= 500
    if isinstance(error, MinioAdminException):
        return "Status: 5" in str(error)  # the exception keeps its status to itself
    return not isinstance(error, urllib3.exceptions.SSLError)


def _account(folder: Path, access_key: str, secret_key: str) -> Account:
    return Account(_read(folder / access_key), _read(folder / secret_key))


def _read(file: Path) -> str:
    try:
        found = file.read_text().strip()
    except OSError as error:
        raise SettingsError(
            f"credential file {file} cannot be read: {error}; the chart mounts it from a Secret"
        ) from error
    if not found:
        raise SettingsError(f"credential file {file} is empty; correct the Secret it is mounted from")
    return found


def _variable(environment: Mapping[str, str], name: str) -> str:
    found = environment.get(name, "")
    if not found:
        raise SettingsError(f"environment variable {name} is not set; the chart sets it in the storage-init Job")
    return found
