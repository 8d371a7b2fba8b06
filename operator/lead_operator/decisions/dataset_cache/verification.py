"""Whether a staged cache is the one that a DatasetCache asks for. Pure; called before anything of it is published.

That a manifest is of its own digest, and its objects of their sums, `lead_protocol.cache_publication` has checked.
"""

import json
from typing import Any

from lead_operator.decisions.dataset_cache.state import BuildState
from lead_operator.decisions.plan import PublishRequest
from lead_operator.resources.dataset_cache import DatasetCache
from lead_protocol.manifests import CacheManifest

SOURCE_CHANGED = "SourceChanged"
NOT_KEYS = ("preset",)  # of spec.config: it names values and is none
MAX_SHOWN = 80


def publish_request(cache: DatasetCache, state: BuildState, digest: str) -> PublishRequest:
    """Returns the request for the digest that a build has resolved to."""
    return PublishRequest(
        namespace=cache.identity.namespace,
        uid=cache.identity.uid,
        generation=state.generation,
        rebuilds=state.rebuilds,
        digest=digest,
        recipe=cache.recipe,
        collections=cache.collections,
        config=json.dumps(cache.config, sort_keys=True),
        source_prefix=cache.source.prefix or "",
    )


def find_mismatch(request: PublishRequest, manifest: CacheManifest) -> str:
    """Returns which field of the spec a manifest does not answer, with what was found; empty where it answers all."""
    if manifest.recipe != request.recipe:
        return f"recipe: found {_shown(manifest.recipe)} in the manifest, expected {request.recipe!r}"
    if request.collections and set(manifest.collections) != set(request.collections):
        held, asked = sorted(manifest.collections), sorted(set(request.collections))
        return f"collections: found {_shown(held)} in the manifest, expected {_shown(asked)}"
    for key, value in json.loads(request.config).items():
        if key in manifest.config and key not in NOT_KEYS and not _same(manifest.config[key], value):
            found = _shown(manifest.config[key])
            return f"config.{key}: found {found} in the manifest, expected {_shown(value)}"
    return ""


def source_mismatch(manifest: CacheManifest, sha256: str, files: int) -> str:
    """Returns how a listing of the source differs from the one that a cache was built from; empty where it does not."""
    if manifest.source_sha256 == sha256:
        return ""
    return (
        f"source: found listing {manifest.source_sha256} in the manifest, expected {sha256} of {files} files: "
        "the source has changed since it was read"
    )


def _same(found: Any, asked: Any) -> bool:
    """Compares values as JSON has them; a recipe may fill in more of a mapping than was asked for."""
    if isinstance(found, dict) and isinstance(asked, dict):
        return all(key not in found or _same(found[key], value) for key, value in asked.items())
    return bool(found == asked)


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
