"""The operator's own settings, read once from the environment at start; written by the Helm chart.

Nothing here comes from a custom resource, and nothing here is a secret: credentials stay in files below
`credentials_dir`, read by the store client alone.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lead_operator.errors import SettingsError
from lead_operator.policy import Policy, read_policy
from lead_protocol.store.address_rules import BUCKET, ENDPOINT, expected_addressing

PROFILE_KEYS = {
    "endpoint", "secure", "bucket", "prefix", "region", "secretName", "buildSecretName", "credentials", "stsEndpoint",
    "roleArns", "shared", "namespaces", "caConfigMap", "operatorSecret",
    "addressing",
}  # fmt: skip
CREDENTIALS = ("static", "webIdentity")
ROLES = ("run", "build")
EVERY_NAMESPACE = "*"  # a key of roleArns
OPEN_PAGES = "None"  # of metrics_authentication
MOST_AT_ONCE = 256  # workers, and calls to the API server
# 16 workers, each with a group of 64 pods to make, are done in 103 s; a pass that takes 300 s counts as one that hangs.
LEAST_CALLS_PER_SECOND = 10
VARIABLE = r"[A-Z][A-Z0-9_]*"  # of pods; the chart's schema holds both patterns too
TAKEN_VARIABLE = (
    r"(LEAD|PET)_.*|HOME|PYTHONUNBUFFERED|OMP_NUM_THREADS|WANDB_API_KEY"
    r"|MASTER_(ADDR|PORT)|((LOCAL|GROUP)_)?(RANK|WORLD_SIZE)|(CUDA|NVIDIA)_VISIBLE_DEVICES"
)
QUANTITY = r"[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P)?"  # of bytes; the chart's schema holds it too
_PREFIX = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]*)(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_STS_ENDPOINT = re.compile(rf"https?://({ENDPOINT})")


@dataclass(frozen=True)
class StorageProfile:
    """An object store that the administrator offers by name."""

    name: str
    endpoint: str  # host:port
    bucket: str
    prefix: str = ""  # without slashes at the ends
    secure: bool = True
    region: str = ""
    addressing: str = "path"  # how requests name the bucket: one of address_rules.ADDRESSINGS
    secret_name: str = ""  # in each namespace for runs; keys access-key, secret-key, perhaps ca.crt
    build_secret_name: str = ""  # the same for build pods; empty: secret_name
    credentials: str = "static"  # one of CREDENTIALS: the mounted Secret, or a token that the store's STS exchanges
    sts_endpoint: str = ""  # URL of the STS; empty: the store's own endpoint
    role_arns: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict, hash=False
    )  # namespace or * -> run | build -> ARN
    shared: tuple[
        str, ...
    ] = ()  # prefixes below datasets/ and weights/ that every namespace may read; each ends with /
    namespaces: tuple[str, ...] = ()  # that may use the profile; empty: all
    operator_secret: str = (
        ""  # namespace/name of the Secret with the operator's own key, for messages; empty: not known
    )
    ca_config_map: str = (
        ""  # in each namespace for runs, key ca.crt: the store's authority; empty: the Secret's, if any
    )

    @property
    def url(self) -> str:
        """The root of everything, as pods get it: s3://bucket or s3://bucket/prefix."""
        return f"s3://{self.bucket}/{self.prefix}" if self.prefix else f"s3://{self.bucket}"

    def uri(self, key: str) -> str:
        """The address of one key below the prefix, for people."""
        return f"{self.url}/{key}"

    def role_arn(self, namespace: str, role: str) -> str:
        """Returns the role (of ROLES) that a namespace's pods ask the STS for; empty where the store needs no name."""
        for key in (namespace, EVERY_NAMESPACE):
            if found := self.role_arns.get(key, {}).get(role):
                return found
        return ""

    def serves(self, namespace: str) -> bool:
        """Whether resources of a namespace may use the profile."""
        return not self.namespaces or namespace in self.namespaces


USER_ID = 65532  # "nonroot" of distroless images; the trainer image uses it too


@dataclass(frozen=True)
class PodDisk:
    """What a pod may write to its node's disk, as Kubernetes quantities; a spec's own ephemeral-storage goes before."""

    scratch: str = "50Gi"  # at most: staged and fetched checkpoints, event files
    tmp: str = "50Gi"  # at most: temporary files of the recipe and of builds
    request: str = "1Gi"  # what the scheduler sets aside


@dataclass(frozen=True)
class PodSecurity:
    """User and groups of the pods of runs; None is left to the platform, which then chooses as OpenShift does."""

    run_as_user: int | None = USER_ID
    run_as_group: int | None = USER_ID
    fs_group: int | None = USER_ID

    def context(self) -> dict[str, int]:
        """Returns them as the security context of a pod."""
        found = {"runAsUser": self.run_as_user, "runAsGroup": self.run_as_group, "fsGroup": self.fs_group}
        return {key: value for key, value in found.items() if value is not None}


@dataclass(frozen=True)
class Settings:
    """The operator's settings at start."""

    trainer_image: str
    trainer_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()  # which the pods' ServiceAccounts name
    pod_environment: Mapping[str, str] = field(default_factory=dict)  # of training and build pods
    pod_disk: PodDisk = field(default_factory=PodDisk)
    pod_security: PodSecurity = field(default_factory=PodSecurity)
    policy: Policy = field(default_factory=Policy)
    storage_profiles: Mapping[str, StorageProfile] = field(default_factory=dict)
    credentials_dir: Path = Path("/etc/lead/s3")
    run_namespaces: tuple[str, ...] = ()  # ("",): all of the cluster
    run_service_account: str = "lead-run"
    build_service_account: str = "lead-build"
    release_namespace: str = "lead-system"
    lease_name: str = "lead-operator"  # of two releases in one namespace each has its own
    log_level: str = "INFO"
    health_port: int = 8080
    metrics_authentication: str = "TokenReview"  # or OPEN_PAGES: whoever reaches the health port reads all
    metrics_port: int = 8443
    metrics_certificates_dir: Path = Path("/etc/lead/metrics")  # tls.crt and tls.key
    # Resources without a pass for two of these get one, and every watch lasts so long: a frozen one ends.
    resync_s: float = 60.0
    relist_s: float = 600.0  # the copies are compared with the API server so often
    progress_s: float = 10.0
    source_check_s: float = 3600.0  # the raw data of a complete cache is listed so often
    workers: int = 16  # concurrent passes; they mostly wait for the API server and the bucket
    api_in_flight: int = 32  # calls to the API server at a time; watches and leases do not count
    api_calls_per_second: float = 0.0  # 0: as many as go; watches and leases do not count

    @property
    def pulls(self) -> str:
        """All that decides whether a node can pull the trainer image, as pods are annotated with it."""
        return " ".join([self.trainer_image, self.trainer_pull_policy, *self.image_pull_secrets])


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Reads the settings from environment variables; raises SettingsError that names the variable."""
    profiles_file = _required(environment, "LEAD_STORAGE_PROFILES_FILE")
    return Settings(
        trainer_image=_required(environment, "LEAD_TRAINER_IMAGE"),
        trainer_pull_policy=_choice(
            environment, "LEAD_TRAINER_PULL_POLICY", Settings.trainer_pull_policy, ("Always", "IfNotPresent", "Never")
        ),
        image_pull_secrets=tuple(environment.get("LEAD_IMAGE_PULL_SECRETS", "").split()),
        pod_environment=_pod_environment(environment.get("LEAD_POD_ENVIRONMENT") or "{}"),
        pod_disk=_pod_disk(environment.get("LEAD_POD_DISK") or "{}"),
        pod_security=_pod_security(environment.get("LEAD_POD_SECURITY", "")),
        policy=read_policy(environment.get("LEAD_POLICY") or "{}"),
        storage_profiles=read_profiles(Path(profiles_file)),
        credentials_dir=Path(environment.get("LEAD_OPERATOR_CREDENTIALS_DIR", Settings.credentials_dir)),
        run_namespaces=_namespaces(_required(environment, "LEAD_RUN_NAMESPACES")),
        run_service_account=environment.get("LEAD_RUN_SERVICE_ACCOUNT", Settings.run_service_account),
        build_service_account=environment.get("LEAD_BUILD_SERVICE_ACCOUNT", Settings.build_service_account),
        release_namespace=environment.get("LEAD_RELEASE_NAMESPACE", Settings.release_namespace),
        lease_name=environment.get("LEAD_LEASE_NAME", Settings.lease_name),
        log_level=_choice(environment, "LEAD_LOG_LEVEL", Settings.log_level, ("DEBUG", "INFO", "WARNING", "ERROR")),
        health_port=_whole(environment, "LEAD_HEALTH_PORT", Settings.health_port, most=65535),
        metrics_authentication=_choice(
            environment, "LEAD_METRICS_AUTHENTICATION", Settings.metrics_authentication, ("TokenReview", OPEN_PAGES)
        ),
        metrics_port=_whole(environment, "LEAD_METRICS_PORT", Settings.metrics_port, most=65535),
        metrics_certificates_dir=Path(
            environment.get("LEAD_METRICS_CERTIFICATES_DIR", Settings.metrics_certificates_dir)
        ),
        resync_s=_number(environment, "LEAD_RESYNC_SECONDS", Settings.resync_s),
        relist_s=_number(environment, "LEAD_RELIST_SECONDS", Settings.relist_s),
        progress_s=_number(environment, "LEAD_PROGRESS_SECONDS", Settings.progress_s),
        source_check_s=_number(environment, "LEAD_SOURCE_CHECK_SECONDS", Settings.source_check_s),
        workers=_whole(environment, "LEAD_WORKERS", Settings.workers, most=MOST_AT_ONCE),
        api_in_flight=_whole(environment, "LEAD_API_IN_FLIGHT", Settings.api_in_flight, most=MOST_AT_ONCE),
        api_calls_per_second=_calls_per_second(environment, "LEAD_API_CALLS_PER_SECOND"),
    )


def _namespaces(text: str) -> tuple[str, ...]:
    found = tuple(name.strip() for name in text.split(",") if name.strip())
    if "*" not in found:
        return found
    if len(found) > 1:
        raise SettingsError(
            f"environment variable LEAD_RUN_NAMESPACES is {text!r}, expected names joined by commas, or * alone for all"
        )
    return ("",)


def _pod_environment(text: str) -> dict[str, str]:
    where = "environment variable LEAD_POD_ENVIRONMENT, the chart's runs.environment,"
    try:
        document = json.loads(text)
    except ValueError as error:
        raise SettingsError(f"{where} is not JSON: {error}") from error
    if not isinstance(document, dict) or not all(isinstance(value, str) for value in document.values()):
        raise SettingsError(f"{where} is {text!r}, expected an object of name to text; numbers stand in quotes")
    for name in document:
        if not re.fullmatch(VARIABLE, name):
            raise SettingsError(f"{where} names {name!r}, expected capitals, digits and underscores")
        if re.fullmatch(TAKEN_VARIABLE, name):
            raise SettingsError(f"{where} names {name}, which the operator or the trainer sets itself; leave it out")
    return document


def _pod_disk(text: str) -> PodDisk:
    where = "environment variable LEAD_POD_DISK, the chart's runs.disk,"
    try:
        document = json.loads(text)
    except ValueError as error:
        raise SettingsError(f"{where} is not JSON: {error}") from error
    known = {"scratch", "tmp", "request"}
    if not isinstance(document, dict) or set(document) - known:
        raise SettingsError(f"{where} is {text:.200}, expected an object with some of {', '.join(sorted(known))}")
    for key, found in document.items():
        if not isinstance(found, str) or not re.fullmatch(QUANTITY, found):
            raise SettingsError(f"{where} has {key} {found!r}, expected a size such as 50Gi")
    return PodDisk(**document)


def _pod_security(text: str) -> PodSecurity:
    """Returns the variable's value; for an empty one the defaults, for an object without a key None for that."""
    if not text:
        return PodSecurity()
    where = "environment variable LEAD_POD_SECURITY, the chart's podSecurity,"
    try:
        document = json.loads(text)
    except ValueError as error:
        raise SettingsError(f"{where} is not JSON: {error}") from error
    known = ("runAsUser", "runAsGroup", "fsGroup")
    if not isinstance(document, dict) or set(document) - set(known):
        raise SettingsError(f"{where} is {text:.200}, expected an object with some of {', '.join(known)}")
    for key, found in document.items():
        if found is not None and (type(found) is not int or found < 0):
            raise SettingsError(f"{where} has {key} {found!r}, expected a whole number, or null")
    return PodSecurity(*(document.get(key) for key in known))


def read_profiles(file: Path) -> dict[str, StorageProfile]:
    """Reads the storage profiles; raises SettingsError that names the file, the profile and the key."""
    try:
        document = json.loads(file.read_text())
    except OSError as error:
        raise SettingsError(f"LEAD_STORAGE_PROFILES_FILE names {file}, which cannot be read: {error}") from error
    except ValueError as error:
        raise SettingsError(f"storage profiles in {file} are not JSON: {error}; correct the chart's values") from error
    if not isinstance(document, dict) or not document:
        raise SettingsError(f"storage profiles in {file} must be an object of name to profile with at least one entry")
    return {name: _profile(name, entry, file) for name, entry in document.items()}


def _profile(name: str, entry: Any, file: Path) -> StorageProfile:
    where = f"storage profile {name!r} in {file}"
    if not isinstance(entry, dict):
        raise SettingsError(f"{where} is {type(entry).__name__}, expected an object")
    if unknown := sorted(set(entry) - PROFILE_KEYS):
        raise SettingsError(f"{where} has unknown keys {unknown}; known are {sorted(PROFILE_KEYS)}")
    endpoint, bucket = entry.get("endpoint", ""), entry.get("bucket", "")
    prefix = str(entry.get("prefix", "")).strip("/")
    if not isinstance(endpoint, str) or not re.fullmatch(ENDPOINT, endpoint):
        raise SettingsError(f"{where}: endpoint is {endpoint!r}, expected host or host:port without a scheme")
    if not isinstance(bucket, str) or not re.fullmatch(BUCKET, bucket):
        raise SettingsError(f"{where}: bucket is {bucket!r}, expected 3 to 63 of a-z, 0-9, dot and dash")
    if prefix and not _PREFIX.fullmatch(prefix):
        raise SettingsError(f"{where}: prefix is {prefix!r}, expected folder names joined by slashes")
    secure = entry.get("secure", True)
    if not isinstance(secure, bool):
        raise SettingsError(f"{where}: secure is {secure!r}, expected true or false")
    addressing = entry.get("addressing", "path")
    if expected := expected_addressing(addressing, endpoint=endpoint, bucket=bucket, secure=secure):
        raise SettingsError(f"{where}: addressing is {addressing!r}, expected {expected}")
    return StorageProfile(
        name=name,
        endpoint=endpoint,
        bucket=bucket,
        prefix=prefix,
        secure=secure,
        region=str(entry.get("region", "")),
        addressing=addressing,
        secret_name=str(entry.get("secretName", "")) or f"lead-s3-{name}",
        build_secret_name=str(entry.get("buildSecretName", "")),
        credentials=_credentials(entry.get("credentials", "static"), where),
        sts_endpoint=_sts_endpoint(entry.get("stsEndpoint", ""), where),
        role_arns=_role_arns(entry.get("roleArns", {}), where),
        shared=tuple(_shared(prefix, where) for prefix in _texts(entry.get("shared", []), f"{where}: shared")),
        namespaces=_texts(entry.get("namespaces", []), f"{where}: namespaces"),
        ca_config_map=str(entry.get("caConfigMap", "")),
        operator_secret=str(entry.get("operatorSecret", "")),
    )


def _credentials(found: Any, where: str) -> str:
    if found not in CREDENTIALS:
        raise SettingsError(f"{where}: credentials is {found!r}, expected one of {', '.join(CREDENTIALS)}")
    return str(found)


def _sts_endpoint(found: Any, where: str) -> str:
    if not isinstance(found, str) or (found and not _STS_ENDPOINT.fullmatch(found)):
        raise SettingsError(
            f"{where}: stsEndpoint is {found!r}, expected https://host:port, http://host:port, or nothing"
        )
    return found


def _role_arns(found: Any, where: str) -> dict[str, dict[str, str]]:
    if not isinstance(found, dict):
        raise SettingsError(f"{where}: roleArns is {found!r}, expected an object of namespace to roles")
    for namespace, arns in found.items():
        if (
            not isinstance(arns, dict)
            or set(arns) - set(ROLES)
            or not all(isinstance(arn, str) for arn in arns.values())
        ):
            raise SettingsError(
                f"{where}: roleArns of {namespace!r} is {arns!r}, expected ARNs of {' and '.join(ROLES)}"
            )
    return found


def _shared(prefix: str, where: str) -> str:
    if not re.fullmatch(rf"(datasets|weights)/({_PREFIX.pattern}/)?", f"{prefix.rstrip('/')}/"):
        raise SettingsError(f"{where}: shared names {prefix!r}, expected a folder below datasets/ or weights/")
    return f"{prefix.rstrip('/')}/"


def _texts(found: Any, where: str) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise SettingsError(f"{where} is {found!r}, expected a list of text")
    return tuple(found)


def _required(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise SettingsError(
            f"environment variable {name} is not set; the Helm chart sets it in the operator Deployment"
        )
    return value


def _choice(environment: Mapping[str, str], name: str, default: str, choices: tuple[str, ...]) -> str:
    value = environment.get(name) or default
    if value not in choices:
        raise SettingsError(f"environment variable {name} is {value!r}, expected one of {', '.join(choices)}")
    return value


def _number(environment: Mapping[str, str], name: str, default: float) -> float:
    value, text = _parsed(environment, name, default, "a number")
    if not 0 < value < math.inf:
        raise SettingsError(f"environment variable {name} is {text!r}, expected a number above 0")
    return value


def _whole(environment: Mapping[str, str], name: str, default: int, *, most: int) -> int:
    expected = f"a whole number from 1 to {most}"
    value, text = _parsed(environment, name, default, expected)
    if not (1 <= value <= most and value.is_integer()):
        raise SettingsError(f"environment variable {name} is {text!r}, expected {expected}")
    return int(value)


def _calls_per_second(environment: Mapping[str, str], name: str) -> float:
    expected = f"0 for no limit, or a number of at least {LEAST_CALLS_PER_SECOND}"
    value, text = _parsed(environment, name, Settings.api_calls_per_second, expected)
    if value != 0 and not LEAST_CALLS_PER_SECOND <= value < math.inf:
        raise SettingsError(f"environment variable {name} is {text!r}, expected {expected}")
    return value


def _parsed(environment: Mapping[str, str], name: str, default: float, expected: str) -> tuple[float, str]:
    text = environment.get(name) or str(default)
    try:
        return float(text), text
    except ValueError as error:
        raise SettingsError(f"environment variable {name} is {text!r}, expected {expected}") from error
