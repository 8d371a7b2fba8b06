"""The page's own settings in a cluster, read once from the environment that the Helm chart sets."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lead_operator.errors import SettingsError
from lead_operator.settings import StorageProfile, read_profiles


@dataclass(frozen=True)
class ProxyHeaders:
    """An authenticating proxy in front of the page: who it names counts only beside the secret that both know."""

    user: str
    groups: str
    secret_header: str
    secret: str


@dataclass(frozen=True)
class UiSettings:
    """What the page serves and how."""

    profiles: Mapping[str, StorageProfile]
    namespaces: tuple[str, ...]  # ("",): all of the cluster
    credentials_dir: Path = Path("/etc/lead/s3")
    host: str = "0.0.0.0"
    port: int = 8400
    release: str = ""  # for the head of the page
    proxy: ProxyHeaders | None = None


def read_ui_settings(environment: Mapping[str, str]) -> UiSettings:
    """Reads the settings; raises SettingsError that names the variable."""
    names = tuple(name.strip() for name in _required(environment, "LEAD_RUN_NAMESPACES").split(",") if name.strip())
    port = environment.get("LEAD_UI_PORT", str(UiSettings.port))
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise SettingsError(f"environment variable LEAD_UI_PORT is {port!r}, expected a whole number from 1 to 65535")
    return UiSettings(
        profiles=read_profiles(Path(_required(environment, "LEAD_STORAGE_PROFILES_FILE"))),
        namespaces=("",) if names == ("*",) else names,
        credentials_dir=Path(environment.get("LEAD_UI_CREDENTIALS_DIR", UiSettings.credentials_dir)),
        host=environment.get("LEAD_UI_HOST", UiSettings.host),
        port=int(port),
        release=environment.get("LEAD_UI_TITLE", ""),
        proxy=_proxy(environment),
    )


def _proxy(environment: Mapping[str, str]) -> ProxyHeaders | None:
    user = environment.get("LEAD_UI_PROXY_USER_HEADER", "")
    if not user:
        return None
    file = Path(_required(environment, "LEAD_UI_PROXY_SECRET_FILE"))
    try:
        secret = file.read_text().strip()
    except OSError as error:
        raise SettingsError(f"LEAD_UI_PROXY_SECRET_FILE names {file}, which cannot be read: {error}") from error
    if len(secret) < 16:
        raise SettingsError(f"the secret in {file} has {len(secret)} characters, expected at least 16")
    return ProxyHeaders(
        user=user,
        groups=environment.get("LEAD_UI_PROXY_GROUPS_HEADER", ""),
        secret_header=_required(environment, "LEAD_UI_PROXY_SECRET_HEADER"),
        secret=secret,
    )


def _required(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise SettingsError(f"environment variable {name} is not set; the Helm chart sets it in the page's Deployment")
    return value
