"""Prepares the embedded MinIO: buckets with versions, the role of pods, and the keys of operator and people.

Run by the chart's Job as `lead-operator storage-init`. Everything it does may be repeated: what exists stays, a rotated
secret key is set again, keys of namespaces and profiles that are no longer listed are removed. It never deletes data,
and never touches a store that the chart did not install.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import urllib3
from minio import Minio
from minio.commonconfig import ENABLED, Filter
from minio.credentials.providers import StaticProvider
from minio.error import MinioAdminException, S3Error
from minio.lifecycleconfig import Expiration, LifecycleConfig, NoncurrentVersionExpiration, Rule
from minio.minioadmin import MinioAdmin
from minio.versioningconfig import VersioningConfig

from lead_operator.cli.store_policies import (
    Policy,
    Tenant,
    TooManyNamespaces,
    data_policy,
    operator_policy,
    role_policies,
    view_policy,
)
from lead_operator.errors import LeadOperatorError, SettingsError
from lead_operator.settings import StorageProfile, read_profiles
from lead_protocol.object_keys import BUILDS, RUNS

DEADLINE_S = 300.0
PAUSE_S = 1.0
KEPT_VERSIONS_DAYS = 1  # how long what was overwritten or deleted can be restored
UNVERSIONED = tuple(f"*{folder}*/progress/" for folder in (RUNS, BUILDS))  # overwritten every few seconds: no versions
# Nobody else's keys begin like this.
OPERATOR_KEYS, DATA_KEYS, VIEW_KEYS = "lead-operator-", "lead-data-", "lead-view-"


class StorageInitError(LeadOperatorError):
    """The store could not be prepared; the message names the store, the last answer and what to check."""


@dataclass(frozen=True)
class Account:
    """A user of the object store."""

    access_key: str
    secret_key: str = field(repr=False)


@dataclass(frozen=True)
class ProfileAccounts:
    """A storage profile on the embedded store and its keys."""

    profile: StorageProfile
    operator: Account
    people: Mapping[str, Account]  # the data key of each namespace for runs that may use the profile
    viewers: Mapping[str, Account] = field(default_factory=dict)  # and its view key


@dataclass(frozen=True)
class EmbeddedStore:
    """What the embedded store shall be like."""

    root: Account
    profiles: tuple[ProfileAccounts, ...]
    alone: bool = False  # there is one namespace for runs
    run_account: str = "lead-run"
    build_account: str = "lead-build"
    ca_file: Path | None = None

    @property
    def tenants(self) -> tuple[Tenant, ...]:
        """Every namespace for runs on every profile that it may use."""
        return tuple(
            Tenant(entry.profile, namespace, alone=self.alone) for entry in self.profiles for namespace in entry.people
        )


def main() -> int:
    """Reads the environment and mounted files that the chart gives, prepares the store, returns the exit status."""
    try:
        wanted = read_request(os.environ)
        init_storage(wanted)
    except LeadOperatorError as error:
        print(f"lead-operator storage-init: {error}", file=sys.stderr)
        return 1
    for entry in wanted.profiles:
        namespaces = ", ".join(entry.people) or "no namespace"
        where = f"{entry.profile.url} at {entry.profile.endpoint}"
        print(f"storage profile {entry.profile.name}: {where} is ready for {namespaces}")
    return 0


def read_request(environment: Mapping[str, str]) -> EmbeddedStore:
    """Returns what to prepare; raises SettingsError naming the variable, profile or file."""
    known = read_profiles(Path(_variable(environment, "LEAD_STORAGE_PROFILES_FILE")))
    folder = Path(_variable(environment, "LEAD_STORAGE_INIT_CREDENTIALS_DIR"))
    namespaces = _variable(environment, "LEAD_RUN_NAMESPACES").split(",")
    profiles = []
    for name in _variable(environment, "LEAD_STORAGE_INIT_PROFILES").split(","):
        if name not in known:
            raise SettingsError(f"LEAD_STORAGE_INIT_PROFILES names {name!r}; the profiles are {sorted(known)}")
        served = [namespace for namespace in namespaces if known[name].serves(namespace)]
        people, viewers = (
            {namespace: _account(folder, f"{name}.{namespace}.{kind}") for namespace in served}
            for kind in ("data", "view")
        )
        profiles.append(ProfileAccounts(known[name], _account(folder, f"{name}.operator"), people, viewers))
    ca_file = environment.get("LEAD_STORAGE_INIT_CA_FILE", "")
    return EmbeddedStore(
        root=Account(_read(folder / "root-user"), _read(folder / "root-password")),
        profiles=tuple(profiles),
        alone=_variable(environment, "LEAD_STORAGE_INIT_ALONE") == "true",
        run_account=_variable(environment, "LEAD_RUN_SERVICE_ACCOUNT"),
        build_account=_variable(environment, "LEAD_BUILD_SERVICE_ACCOUNT"),
        ca_file=Path(ca_file) if ca_file else None,
    )


def init_storage(
    wanted: EmbeddedStore, *, deadline_s: float = DEADLINE_S, now: Callable[[], float] = time.monotonic
) -> None:
    """Prepares the store, waiting for its server where it does not answer yet; raises StorageInitError."""
    _repeat(lambda: _prepare(wanted), wanted.profiles[0].profile, deadline_s, now)


def wanted_policies(wanted: EmbeddedStore) -> dict[str, Policy]:
    """Returns every policy of the store by name; raises StorageInitError where the role's do not fit."""
    try:
        policies = role_policies(wanted.tenants, run_account=wanted.run_account, build_account=wanted.build_account)
    except TooManyNamespaces as error:
        raise StorageInitError(str(error)) from error
    for entry in wanted.profiles:
        policies[operator_key_policy(entry.profile)] = operator_policy(entry.profile)
    for tenant in wanted.tenants:
        policies[data_key_policy(tenant.profile, tenant.namespace)] = data_policy(tenant)
        policies[view_key_policy(tenant.profile, tenant.namespace)] = view_policy(tenant)
    return policies


def operator_key_policy(profile: StorageProfile) -> str:
    """Returns the name of the policy of the operator's key."""
    return f"{OPERATOR_KEYS}{profile.name}"


def data_key_policy(profile: StorageProfile, namespace: str) -> str:
    """Returns the name of the policy of a namespace's data key; a dot is in no name of either."""
    return f"{DATA_KEYS}{profile.name}.{namespace}"


def view_key_policy(profile: StorageProfile, namespace: str) -> str:
    """Returns the name of the policy of a namespace's view key."""
    return f"{VIEW_KEYS}{profile.name}.{namespace}"


def _prepare(wanted: EmbeddedStore) -> None:
    profile, root = wanted.profiles[0].profile, wanted.root
    ca_certs = str(wanted.ca_file) if wanted.ca_file else None
    timeout = urllib3.Timeout(connect=5, read=30)
    pool = urllib3.PoolManager(retries=False, timeout=timeout, cert_reqs="CERT_REQUIRED", ca_certs=ca_certs)
    endpoint, region = profile.endpoint, profile.region or "us-east-1"
    client = Minio(
        endpoint,
        access_key=root.access_key,
        secret_key=root.secret_key,
        secure=profile.secure,
        region=region,
        http_client=pool,
    )
    for bucket in sorted({entry.profile.bucket for entry in wanted.profiles}):
        _prepare_bucket(client, bucket)
    admin = MinioAdmin(
        endpoint=endpoint,
        credentials=StaticProvider(root.access_key, root.secret_key),
        region=region,
        secure=profile.secure,
        http_client=pool,
    )
    _set_keys(admin, wanted)


def _prepare_bucket(client: Minio, bucket: str) -> None:
    if not client.bucket_exists(bucket):
        _ignoring_own_bucket(lambda: client.make_bucket(bucket))
    client.set_bucket_versioning(bucket, VersioningConfig(ENABLED, excluded_prefixes=list(UNVERSIONED)))
    rule = Rule(
        ENABLED,
        rule_filter=Filter(prefix=""),
        rule_id="lead-versions",
        expiration=Expiration(expired_object_delete_marker=True),
        noncurrent_version_expiration=NoncurrentVersionExpiration(noncurrent_days=KEPT_VERSIONS_DAYS),
    )
    client.set_bucket_lifecycle(bucket, LifecycleConfig([rule]))


def _set_keys(admin: MinioAdmin, wanted: EmbeddedStore) -> None:
    policies = wanted_policies(wanted)
    for name, policy in policies.items():
        admin.policy_add(name, policy=policy)
    keys = set[str]()
    for entry in wanted.profiles:
        named = [(entry.operator, operator_key_policy(entry.profile))]
        named += [(account, data_key_policy(entry.profile, name)) for name, account in entry.people.items()]
        named += [(account, view_key_policy(entry.profile, name)) for name, account in entry.viewers.items()]
        for account, policy_name in named:
            admin.user_add(account.access_key, account.secret_key)
            admin.policy_set(policy_name, user=account.access_key)
            keys.add(account.access_key)
    ours = (OPERATOR_KEYS, DATA_KEYS, VIEW_KEYS)
    for user in json.loads(admin.user_list()):
        if user.startswith(ours) and user not in keys:
            admin.user_remove(user)
    for name in json.loads(admin.policy_list()):
        if name.startswith(ours) and name not in policies:
            admin.policy_remove(name)


def _ignoring_own_bucket(make: Callable[[], None]) -> None:
    try:
        make()
    except S3Error as error:
        if error.code != "BucketAlreadyOwnedByYou":  # another try of this Job was faster
            raise


def _repeat(action: Callable[[], None], profile: StorageProfile, deadline_s: float, now: Callable[[], float]) -> None:
    deadline = now() + deadline_s
    while True:
        try:
            return action()
        except (S3Error, MinioAdminException, urllib3.exceptions.HTTPError) as error:
            if not _may_pass(error) or now() + PAUSE_S > deadline:
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


def _account(folder: Path, whose: str) -> Account:
    return Account(_read(folder / f"{whose}-access-key"), _read(folder / f"{whose}-secret-key"))


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
