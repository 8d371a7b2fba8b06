"""A DatasetCache as the rest of the operator reads it: body in, frozen dataclass out; its defaults are the CRD's."""

from dataclasses import dataclass
from typing import Any

from lead_operator import names
from lead_operator.resources.body import Identity, Reader, parse_identity
from lead_operator.resources.build_stages import BuildStage, parse_build_stages
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
    stages: tuple[BuildStage, ...]  # of the build; the last one commits the manifest, and is often the only one
    pod_settings: PodSettings
    expect_digest: str
    retain: str  # Retain | Delete
    has_finalizer: bool = False  # it has the finalizer that keeps it until its data is removed

    @property
    def last_stage(self) -> BuildStage:
        """The stage that commits the manifest."""
        return self.stages[-1]

    @property
    def in_stages(self) -> bool:
        """Whether the spec gives stages pods of their own."""
        return len(self.stages) > 1

    def stage(self, name: str) -> BuildStage:
        """Returns the stage of a name; raises KeyError."""
        return {stage.name: stage for stage in self.stages}[name]


def parse_dataset_cache(body: dict[str, Any]) -> DatasetCache:
    """Reads a DatasetCache body; raises SpecError naming the field that is missing or of the wrong type."""
    identity = parse_identity(body, names.DATASET_CACHE_KIND)
    spec = Reader(body.get("spec"), owner=str(identity), path="spec")
    source, build = spec.child("source"), spec.child("build")
    resources = parse_resources(build.child("resources"))
    return DatasetCache(
        identity=identity,
        recipe=spec.get("recipe", str),
        storage_profile=spec.get("storageProfile", str),
        source=Source(source.optional("prefix", str), source.optional("claimName", str), source.text("path")),
        collections=tuple(spec.get("collections", list)),
        config=spec.get("config", dict),
        parallelism=build.get("parallelism", int),
        max_retries=build.get("maxRetries", int),
        resources=resources,
        stages=parse_build_stages(build, resources),
        pod_settings=PodSettings(node_selector=build.texts("nodeSelector"), tolerations=parse_tolerations(build)),
        expect_digest=spec.text("expectDigest"),
        retain=spec.get("retain", str),
        has_finalizer=names.CACHE_DATA_FINALIZER in (body.get("metadata") or {}).get("finalizers", []),
    )
