"""One pod's share of building a dataset cache, or of a stage of it: dataclass in, Kubernetes dict out; no clock."""

from typing import Any

from lead_operator import names
from lead_operator.objects.pod_skeleton import KubernetesObject, PodParts, build_pod
from lead_operator.resources.build_stages import BuildStage
from lead_operator.resources.dataset_cache import DatasetCache
from lead_operator.resources.recipe_config import require_config
from lead_operator.settings import Settings, StorageProfile
from lead_protocol.environment import SOURCE_DIR
from lead_protocol.job import BuildJob, FolderSource, OwnerIdentity, StoreSource

GRACE_PERIOD_S = 30  # a shard that is not complete is built again; nothing needs more time


def build_cache_pod(
    cache: DatasetCache,
    *,
    attempt: int,
    index: int,
    profile: StorageProfile,
    settings: Settings,
    stage: BuildStage | None = None,
) -> KubernetesObject:
    """Returns the pod that does the share k % workers == index of a stage; of the last one where none is named."""
    identity, stage = cache.identity, stage or cache.last_stage
    volumes, mounts = _source_volume(cache)
    return build_pod(
        PodParts(
            name=names.build_pod_name(identity.name, identity.generation, attempt, index, stage.name),
            owner=identity,
            job=build_build_job(cache, stage, attempt=attempt, index=index),
            profile=profile,
            settings=settings,
            resources=stage.resources,
            pod_settings=cache.pod_settings,
            grace_period_s=GRACE_PERIOD_S,
            labels={
                names.Label.COMPONENT: "cache-build",
                names.Label.ROLE: names.Role.BUILD.value,
                names.Label.CACHE: names.label_value(identity.name),
                names.Label.GENERATION: str(identity.generation),
                names.Label.ATTEMPT: str(attempt),
                names.Label.INDEX: str(index),
                **({names.Label.STAGE: stage.shown_name} if cache.in_stages else {}),
            },
            env=({"name": "OMP_NUM_THREADS", "value": str(max(1, int(stage.resources.cpus)))},),
            volumes=volumes,
            volume_mounts=mounts,
        )
    )


def build_build_job(cache: DatasetCache, stage: BuildStage, *, attempt: int, index: int) -> BuildJob:
    """Returns the job of one build pod."""
    identity, source = cache.identity, cache.source
    return BuildJob(
        owner=OwnerIdentity(namespace=identity.namespace, name=identity.name, uid=identity.uid),
        generation=identity.generation,
        attempt=attempt,
        index=index,
        parallelism=stage.workers,
        recipe=cache.recipe,
        source=StoreSource(prefix=source.prefix.rstrip("/"))
        if source.prefix
        else FolderSource(path=f"{SOURCE_DIR}/{source.path}".rstrip("/")),
        collections=list(cache.collections),
        config=require_config(cache.config),
        expect_digest=cache.expect_digest,
        stage=stage.name,
        stages=[each.name for each in cache.stages if not each.commits],
        made=list(stage.after),
    )


def _source_volume(cache: DatasetCache) -> tuple[tuple[dict[str, Any], ...], tuple[dict[str, Any], ...]]:
    if cache.source.claim_name is None:
        return (), ()
    claim = {"claimName": cache.source.claim_name, "readOnly": True}
    return (
        ({"name": "source", "persistentVolumeClaim": claim},),
        ({"name": "source", "mountPath": SOURCE_DIR, "readOnly": True},),
    )
