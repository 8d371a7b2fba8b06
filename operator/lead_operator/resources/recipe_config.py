"""What may stand in a `config`, and what is kept of one.

The CRD preserves a `config` whole, whatever it holds, because the recipe in the pod judges it: so size and depth are
limited here. It travels to a pod as an annotation, and the API server allows all annotations of an object 256 KiB:
spec.config and that of a stage, merged, with the rest of the job must fit. Recipes have some hundred flat keys, 10 KiB.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Final

MAX_CONFIG_BYTES: Final = 64 * 1024  # as compact JSON, of each `config`
MAX_CONFIG_DEPTH: Final = 32  # the trainer's parser ends at 200 levels; pydantic's and orjson's writer at 255


@dataclass(frozen=True)
class Rejection:
    """Why a resource is not served: it is left alone until somebody mends it."""

    reason: str  # of the condition Accepted
    message: str  # for people: what was found where, what is expected, what to do


class OmittedConfig(dict[str, Any]):
    """Stands, empty, for a `config` that is too large to keep in memory; it is read when pods are built."""

    def __init__(self, sha256: str) -> None:
        super().__init__()
        self.sha256 = sha256


class ConfigOmitted(Exception):
    """A decision needs the keys of a `config` that was omitted: read the resource whole, and decide again."""


def config_sha256(config: dict[str, Any]) -> str:
    """Returns the SHA-256 of a `config` with sorted keys; the same whether it is kept or omitted."""
    if isinstance(config, OmittedConfig):
        return config.sha256
    return hashlib.sha256(json.dumps(config, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def require_config(config: dict[str, Any]) -> dict[str, Any]:
    """Returns a `config` that is there; raises ConfigOmitted for one that is not."""
    if isinstance(config, OmittedConfig):
        raise ConfigOmitted
    return config
