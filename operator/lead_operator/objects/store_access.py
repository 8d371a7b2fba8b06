"""How a pod reaches its store and proves who it is: environment, volumes and mounts; dataclass in, dicts out.

`webIdentity`: a ServiceAccount token of the pod, which the kubelet keeps fresh and only the store's STS takes, because
of its audience; no lasting key. `static`: the Secret of the storage profile.
"""

from dataclasses import dataclass
from typing import Any

from lead_operator.settings import Settings, StorageProfile
from lead_protocol import environment

CREDENTIALS_VOLUME = "s3"
TOKEN_VOLUME = "store-token"
# Of the pod's group, which `fsGroup` makes the files' own: a container that runs as another user cannot read them.
FILE_MODE = 0o440
TOKEN_DIR, TOKEN_PATH = environment.STORE_TOKEN_FILE.rsplit("/", 1)
_CA_ITEM = {"key": "ca.crt", "path": environment.CA_FILE.rsplit("/", 1)[1]}

KubernetesObject = dict[str, Any]


@dataclass(frozen=True)
class StoreAccess:
    """What a pod gets to reach one storage profile in one role."""

    profile: StorageProfile
    namespace: str
    role: str  # of settings.ROLES

    def service_account(self, settings: Settings) -> str:
        """Returns the ServiceAccount whose token the store knows the pod by."""
        return settings.build_service_account if self.role == "build" else settings.run_service_account

    @property
    def env(self) -> list[KubernetesObject]:
        """Variables that `lead_protocol.store.open_store` reads."""
        profile = self.profile
        values = {
            environment.STORAGE_PROFILE: profile.name,
            environment.STORE_ENDPOINT: profile.endpoint,
            environment.STORE_SECURE: "true" if profile.secure else "false",
            environment.STORE_REGION: profile.region,
            environment.STORE_ADDRESSING: profile.addressing,
            environment.STORE_URL: profile.url,
            environment.STORE_CREDENTIALS: profile.credentials,
        }
        if self._has_token:
            values[environment.STS_ENDPOINT] = profile.sts_endpoint
            values[environment.STS_ROLE_ARN] = profile.role_arn(self.namespace, self.role)
        return [{"name": name, "value": value} for name, value in values.items()]

    @property
    def volumes(self) -> list[KubernetesObject]:
        """Where the credentials, the authority and the token come from."""
        found = self._credentials()
        if self._has_token:
            token = {
                "audience": environment.STORE_TOKEN_AUDIENCE,
                "expirationSeconds": environment.STORE_TOKEN_LIFE_S,
                "path": TOKEN_PATH,
            }
            projected = {"defaultMode": FILE_MODE, "sources": [{"serviceAccountToken": token}]}
            found.append({"name": TOKEN_VOLUME, "projected": projected})
        return found

    @property
    def mounts(self) -> list[KubernetesObject]:
        """Where the container finds them."""
        folders = {CREDENTIALS_VOLUME: environment.CREDENTIALS_DIR, TOKEN_VOLUME: TOKEN_DIR}
        return [
            {"name": volume["name"], "mountPath": folders[volume["name"]], "readOnly": True} for volume in self.volumes
        ]

    @property
    def _has_token(self) -> bool:
        return self.profile.credentials == "webIdentity"

    def _credentials(self) -> list[KubernetesObject]:
        own = self.profile.build_secret_name if self.role == "build" else ""
        secret = "" if self._has_token else own or self.profile.secret_name
        authority = self.profile.ca_config_map
        if secret and not authority:
            return [{"name": CREDENTIALS_VOLUME, "secret": {"secretName": secret, "defaultMode": FILE_MODE}}]
        # What later sources hold replaces what earlier ones do: the ConfigMap's authority comes before the Secret's.
        sources: list[KubernetesObject] = [{"secret": {"name": secret}}] if secret else []
        if authority:
            sources.append({"configMap": {"name": authority, "items": [_CA_ITEM]}})
        if not sources:
            return []
        return [{"name": CREDENTIALS_VOLUME, "projected": {"defaultMode": FILE_MODE, "sources": sources}}]


@dataclass(frozen=True)
class NoStoreAccess(StoreAccess):
    """What a pod gets that needs no store: neither address, nor credentials, nor a token."""

    @property
    def env(self) -> list[KubernetesObject]:
        """No variables."""
        return []

    @property
    def volumes(self) -> list[KubernetesObject]:
        """No volumes, and so no mounts."""
        return []
