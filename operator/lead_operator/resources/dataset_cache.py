"""A DatasetCache as the rest of the operator reads it: body in, frozen dataclass out; its defaults are the CRD's."""

from dataclasses import dataclass
from typing import Any

from lead_operator import names
from lead_operator.resources.body import Reader
from lead_operator.resources.identity import Identity, parse_identity
from lead_operator.resources.pod_settings import ComputeResources, PodSettings, parse_resources, parse_tolerations


@dataclass(frozen=True)
class Source:
    """Where the raw tree lies: a prefix in the bucket, or a folder of a claim."""

    prefix: str | None
    claim_name: str | None
    path: str


@dataclass(frozen=True)
class DatasetCache:
    """What one DatasetCache asks for."""

    identity: Identity
    recipe: str
    storage_profile: str
    source: Source
    collections: tuple[str, ...]
    config: dict[str, Any]
    parallelism: int
    max_retries: int
    resources: ComputeResources
    pod_settings: PodSettings
    expect_digest: str
    retain: str  # Retain | Delete
    guarded: bool = False  # it carries the finalizer that keeps it until its data are gone


def parse_dataset_cache(body: dict[str, Any]) -> DatasetCache:
    """Reads a DatasetCache body; raises SpecError naming the field that is missing or of the wrong type."""
    identity = parse_identity(body, names.DATASET_CACHE_KIND)
    spec = Reader(body.get("spec"), owner=str(identity), path="spec")
    source, build = spec.child("source"), spec.child("build")
    return DatasetCache(
        identity=identity,
        recipe=spec.get("recipe", str),
        storage_profile=spec.get("storageProfile", str),
        source=Source(source.optional("prefix", str), source.optional("claimName", str), source.get("path", str)),
        collections=tuple(spec.get("collections", list)),
        config=spec.get("config", dict),
        parallelism=build.get("parallelism", int),
        max_retries=build.get("maxRetries", int),
        resources=parse_resources(build.child("resources")),
        pod_settings=PodSettings(node_selector=build.texts("nodeSelector"), tolerations=parse_tolerations(build)),
        expect_digest=spec.get("expectDigest", str),
        retain=spec.get("retain", str),
        guarded=names.CACHE_DATA_FINALIZER in (body.get("metadata") or {}).get("finalizers", []),
    )
