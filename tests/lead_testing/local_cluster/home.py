"""Where everything of the local cluster lies on disk; called by every module of this package, touches nothing.

Caches (programs, images) outlive `down`; the state folder of a cluster does not.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Home:
    """The folders below `${LEAD_HOME:-~/.cache/lead}`."""

    root: Path

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Home":
        """Reads LEAD_HOME, else XDG_CACHE_HOME/lead, else ~/.cache/lead."""
        if environment.get("LEAD_HOME"):
            return cls(Path(environment["LEAD_HOME"]).expanduser().absolute())
        cache = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", "/root")) / ".cache"
        return cls(Path(cache) / "lead")

    @property
    def bin(self) -> Path:
        """Links to the newest build of every program; meant for PATH."""
        return self.root / "bin"

    @property
    def tools(self) -> Path:
        """Built programs, one folder a module and stamp."""
        return self.root / "tools"

    @property
    def images(self) -> Path:
        """The image builder's storage, pip's cache, build contexts and the base image."""
        return self.root / "images"

    @property
    def image_storage(self) -> Path:
        """Where the builder keeps layers; absent until images are built for the first time."""
        return self.images / "storage"

    @property
    def registry(self) -> Path:
        """What was pushed to the loopback registry."""
        return self.root / "registry"

    @property
    def containerd(self) -> Path:
        """Pulled and unpacked images; kept by `down`, so that the next start pulls nothing."""
        return self.root / "containerd"

    @property
    def locks(self) -> Path:
        """Lock files; their content means nothing."""
        return self.root / "locks"

    @property
    def cluster(self) -> Path:
        """The state folder of the one local cluster: kubeconfig, keys, etcd, volumes, logs. `down` removes it."""
        return self.root / "cluster"
