"""Which credentials a process uses, from its environment and mounted files; called by `open_store` alone.

    LEAD_S3_CREDENTIALS=static        files `access-key` and `secret-key` of the credentials folder
    LEAD_S3_CREDENTIALS=webIdentity   the pod's token (or that of AWS_WEB_IDENTITY_TOKEN_FILE), exchanged at
                                      LEAD_STS_ENDPOINT (default: the store's own) for the role LEAD_STS_ROLE_ARN
    LEAD_S3_CREDENTIALS=instanceRole  the role of the container or machine

Where it is not set: the files, if the credentials folder holds them; else what AWS's tools read, in their order:
AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN); AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN, with
AWS_ENDPOINT_URL_STS or AWS's own STS; the profile AWS_PROFILE of ~/.aws/credentials; a container's role. The metadata
service of a machine is asked under `instanceRole` only: elsewhere the question would just time out.
"""

import re
from collections.abc import Mapping
from configparser import Error as ConfigParserError
from functools import partial
from pathlib import Path

from minio.credentials.providers import AWSConfigProvider

from lead_protocol import environment as names
from lead_protocol.store.address_rules import ENDPOINT
from lead_protocol.store.credentials import Credentials, CredentialsProvider, FixedCredentials, ReadCredentials
from lead_protocol.store.instance_role import SOURCE, obtain_role
from lead_protocol.store.object_store import StoreError
from lead_protocol.store.renewed_credentials import RenewedCredentials
from lead_protocol.store.trusted_pool import TrustedPool
from lead_protocol.store.web_identity import TokenExchange, WebIdentity

MODES = ("static", "webIdentity", "instanceRole")
_STS = re.compile(rf"https?://({ENDPOINT})/?")
_CONTAINER_ROLE = ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI")


class StoreNotConfigured(StoreError):
    """A variable or file is missing or wrong; the message names it, what was found and what is expected."""


def credentials_from(
    environ: Mapping[str, str],
    *,
    folder: Path,
    store_origin: str,
    session_policy: str = "",
    session_name: str = "",
    ca_file: Path | None = None,
) -> CredentialsProvider:
    """Returns the provider that the environment asks for; makes no request; raises StoreNotConfigured.

    `session_policy` narrows what temporary credentials of a role may do; static ones cannot be narrowed.
    """
    mode = environ.get(names.STORE_CREDENTIALS, "")
    narrowed = partial(
        _web_identity, environ, session_policy=session_policy, session_name=session_name, ca_file=ca_file
    )
    if mode == "webIdentity":
        return narrowed(
            token_file=_token_file(environ),
            sts_endpoint=environ.get(names.STS_ENDPOINT) or store_origin,
            role_arn=environ.get(names.STS_ROLE_ARN, ""),
        )
    if mode == "instanceRole":
        return RenewedCredentials(obtain_role, SOURCE)
    if mode not in ("", "static"):
        raise wrong_variable(names.STORE_CREDENTIALS, mode, f"one of {', '.join(MODES)}")
    if mode == "static" or (folder / "access-key").exists():
        return ReadCredentials(partial(_mounted, folder), f"static credentials of {folder}")
    return _aws(environ, folder, narrowed)


def wrong_variable(name: str, found: str, expected: str) -> StoreNotConfigured:
    """Returns the error that names a variable, what it is and what it should be."""
    state = f"is {found!r}" if found else "is not set"
    return StoreNotConfigured(f"environment variable {name} {state}; expected {expected}")


def _aws(environ: Mapping[str, str], folder: Path, narrowed: "partial[CredentialsProvider]") -> CredentialsProvider:
    pair = environ.get("AWS_ACCESS_KEY_ID", ""), environ.get("AWS_SECRET_ACCESS_KEY", "")
    if all(pair):
        found = Credentials(*pair, environ.get("AWS_SESSION_TOKEN", ""))
        return FixedCredentials(found, "static credentials of the environment (AWS_ACCESS_KEY_ID)")
    if environ.get("AWS_WEB_IDENTITY_TOKEN_FILE") and environ.get("AWS_ROLE_ARN"):
        region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or environ.get(names.STORE_REGION)
        return narrowed(
            token_file=Path(environ["AWS_WEB_IDENTITY_TOKEN_FILE"]),
            sts_endpoint=environ.get("AWS_ENDPOINT_URL_STS") or _sts_of_aws(region or ""),
            role_arn=environ["AWS_ROLE_ARN"],
        )
    if environ.get("AWS_PROFILE"):
        file = environ.get("AWS_SHARED_CREDENTIALS_FILE") or str(
            Path(environ.get("HOME", "/")) / ".aws" / "credentials"
        )
        return ReadCredentials(
            partial(_of_aws_profile, file, environ["AWS_PROFILE"]),
            f"static credentials of {file}, profile {environ['AWS_PROFILE']}",
        )
    if any(environ.get(name) for name in _CONTAINER_ROLE):
        return RenewedCredentials(obtain_role, SOURCE)
    raise StoreNotConfigured(
        f"no S3 credentials: there is no file {folder / 'access-key'}, and AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY "
        "are not both set; mount the storage profile's Secret there, set both variables, or choose a mode by "
        f"{names.STORE_CREDENTIALS} ({', '.join(MODES)})"
    )


def _web_identity(
    environ: Mapping[str, str],
    *,
    token_file: Path,
    sts_endpoint: str,
    role_arn: str,
    session_policy: str,
    session_name: str,
    ca_file: Path | None,
) -> CredentialsProvider:
    if not _STS.fullmatch(sts_endpoint):
        raise wrong_variable(names.STS_ENDPOINT, sts_endpoint, "https://host:port, or http://host:port")
    identity = WebIdentity(
        sts_endpoint=f"{sts_endpoint.rstrip('/')}/",
        token_file=token_file,
        role_arn=role_arn,
        session_name=session_name or "lead",
        session_policy=session_policy,
        profile=environ.get(names.STORAGE_PROFILE, ""),
    )
    return RenewedCredentials(TokenExchange(identity, TrustedPool(ca_file)).obtain, identity.source)


def _token_file(environ: Mapping[str, str]) -> Path:
    """Returns the projected token, or the one that AWS's tools would take where a pod has none of ours."""
    own, others = Path(names.STORE_TOKEN_FILE), environ.get("AWS_WEB_IDENTITY_TOKEN_FILE", "")
    return Path(others) if others and not own.exists() else own


def _sts_of_aws(region: str) -> str:
    if not region:
        return "https://sts.amazonaws.com"
    return f"https://sts.{region}.amazonaws.com" + (".cn" if region.startswith("cn-") else "")


def _of_aws_profile(file: str, profile: str) -> Credentials:
    try:
        found = AWSConfigProvider(file, profile).retrieve()
    # configparser's own errors, a missing profile, and bytes that are no text
    except (ConfigParserError, ValueError, OSError) as error:
        raise StoreNotConfigured(
            f"AWS credentials file {file} has no usable profile {profile!r} ({type(error).__name__}); correct "
            "AWS_PROFILE, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        ) from error
    return Credentials(found.access_key, found.secret_key, found.session_token or "")


def _mounted(folder: Path) -> Credentials:
    return Credentials(_read(folder / "access-key"), _read(folder / "secret-key"))


def _read(path: Path) -> str:
    try:
        found = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise StoreNotConfigured(
            f"cannot read the credential file {path}: {reason}; check the profile's Secret"
        ) from error
    if not found:
        raise StoreNotConfigured(f"the credential file {path} is empty; check the storage profile's Secret")
    return found
