"""The buckets of a cluster's storage profiles, opened with keys that read and do nothing else."""

from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from lead_operator.bucket.profile_store import LIMITS, store_environment
from lead_protocol.store.credentials_chain import StoreNotConfigured
from lead_protocol.store.object_store import ObjectStore
from lead_protocol.store.open_store import open_store
from lead_ui.cluster.settings import UiSettings
from lead_ui.source import SourceUnavailable

DEFAULT_PROFILE = "default"


@dataclass
class Buckets:
    """Stores by profile and namespace; on the embedded store each namespace has a key of its own."""

    settings: UiSettings
    _open: dict[tuple[str, str], ObjectStore] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def store(self, profile: str, namespace: str) -> ObjectStore:
        """Returns the store that holds a namespace's objects; raises SourceUnavailable naming what is missing."""
        name = profile or DEFAULT_PROFILE
        with self._lock:
            if (name, namespace) not in self._open:
                self._open[name, namespace] = self._opened(name, namespace)
            return self._open[name, namespace]

    def url(self, profile: str) -> str:
        """Returns the address of a profile's bucket, empty for a profile that does not exist."""
        found = self.settings.profiles.get(profile or DEFAULT_PROFILE)
        return found.url if found else ""

    def _opened(self, name: str, namespace: str) -> ObjectStore:
        profile = self.settings.profiles.get(name)
        if profile is None or not profile.serves(namespace):
            raise SourceUnavailable(f"the storage profile {name} does not serve the namespace {namespace}")
        folder = self._credentials(name, namespace)
        if not (folder / "access-key").exists():
            raise SourceUnavailable(f"the page has no key for the storage profile {name} in {namespace}, so curves and "
                                    f"checkpoints are not shown; set storage.profiles.{name}.uiSecret")  # fmt: skip
        try:
            return open_store(store_environment(profile), credentials_dir=folder, limits=LIMITS)
        except StoreNotConfigured as error:
            raise SourceUnavailable(str(error)) from error

    def _credentials(self, profile: str, namespace: str) -> Path:
        own = self.settings.credentials_dir / profile / namespace
        return own if own.is_dir() else self.settings.credentials_dir / profile
