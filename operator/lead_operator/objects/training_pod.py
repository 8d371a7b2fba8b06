"""One rank of one attempt of one stage instance: dataclass in, Kubernetes dict out; no client, no clock."""

import re
from collections.abc import Mapping
from typing import Any

from lead_operator import names
from lead_operator.errors import SpecError
from lead_operator.objects.pod_skeleton import EnvVar, KubernetesObject, PodParts, build_pod, fits_a_pod
from lead_operator.objects.service_and_claims import claim_name
from lead_operator.resources.body import parse_quantity
from lead_operator.resources.recipe_config import require_config
from lead_operator.resources.training_run import StageInstance, TrainingRun
from lead_operator.settings import Settings, StorageProfile
from lead_protocol import environment
from lead_protocol.job import (
    CheckedStage,
    CheckJob,
    CheckpointPolicy,
    DatasetSource,
    InitFrom,
    LoggingPolicy,
    OwnerIdentity,
    TrainJob,
)
from lead_protocol.merged_keys import merged_keys
from lead_protocol.object_keys import InstanceKeys

# An emptyDir above its sizeLimit gets the pod evicted, so the cache stops filling before that; so does a pod above its
# limit of ephemeral storage, to which scratch files, /tmp and logs count as well.
CACHE_FILL_SHARE = 0.95
EPHEMERAL_FILL_SHARE = 0.75
_KEY = re.compile(
    r"runs/(?P<namespace>[a-z0-9-]+)/(?P<uid>[0-9a-f-]+)/(?P<stage>[a-z0-9-]+)-s(?P<seed>[0-9]{1,9})/"
    r"(checkpoints/(?P<step>[0-9]{12})/(?P<attempt>[0-9]{4,9})-(?P<nonce>[A-Za-z0-9]{1,64})/)?"
)


def build_training_pod(
    run: TrainingRun,
    instance: StageInstance,
    *,
    attempt: int,
    rank: int,
    datasets: Mapping[str, DatasetSource],
    profile: StorageProfile,
    settings: Settings,
) -> KubernetesObject:
    """Returns the pod of one rank; `datasets` maps names of DatasetCaches to their contents."""
    stage, seed, identity = instance.stage, instance.seed, run.identity
    name = names.training_pod_name(identity.name, stage.name, seed, attempt, rank)
    job = build_train_job(run, instance, attempt=attempt, datasets=datasets, profile=profile)
    if job.all_stages and not fits_a_pod(job):  # with the keys of all stages: each is checked when it starts, then
        job = job.model_copy(update={"all_stages": None})
    return build_pod(
        PodParts(
            name=name,
            owner=identity,
            job=job,
            profile=profile,
            settings=settings,
            resources=run.resources,
            pod_settings=run.pod_settings,
            grace_period_s=run.grace_period_s,
            labels=_labels(run, instance, attempt, rank),
            annotations=_queue_annotations(run),
            env=(*_rendezvous_env(run, instance, attempt, rank), *_wandb_env(run)),
            volumes=_volumes(run, rank),
            volume_mounts=(
                {"name": "session-cache", "mountPath": environment.SESSION_CACHE_DIR},
                {"name": "shm", "mountPath": "/dev/shm"},
            ),
            disk_besides=(run.session_cache.size_limit,) if run.session_cache.medium == "EmptyDir" else (),
            spec=_pod_spec(run, name),
        )
    )


def build_train_job(
    run: TrainingRun,
    instance: StageInstance,
    *,
    attempt: int,
    datasets: Mapping[str, DatasetSource],
    profile: StorageProfile,
) -> TrainJob:
    """Returns the job of every rank of an attempt."""
    return TrainJob(
        owner=OwnerIdentity(namespace=run.identity.namespace, name=run.identity.name, uid=run.identity.uid),
        stage=instance.stage.name,
        seed=instance.seed,
        attempt=attempt,
        recipe=run.recipe,
        preset=run.preset,
        config=merged_keys(require_config(run.config), run.keys_of(instance.stage)),
        epochs=instance.stage.epochs,
        nodes=run.nodes,
        procs_per_node=run.procs_per_node,
        datasets=[datasets[name] for name in run.datasets],
        checkpoint=CheckpointPolicy(
            every_epochs=run.checkpoint.every_epochs,
            every_steps=run.checkpoint.every_steps,
            keep_last=run.checkpoint.keep_last,
            keep_best=run.checkpoint.keep_best,
            keep_every_epochs=run.checkpoint.keep_every_epochs,
            on_best=run.checkpoint.on_best,
            resume="Never" if run.checkpoint.resume == "Never" else "Auto",
        ),
        init_from=_init_from(run, instance, profile),
        evaluates=instance.stage.evaluates,
        resume_from=_resume_from(run, instance, profile),
        session_cache_bytes=_session_cache_bytes(run),
        logging=_logging(run),
        grace_period_s=run.grace_period_s,
        all_stages=build_check_job(run) if len(run.stages) > 1 and instance.stage.name == run.stages[0].name else None,
    )


def build_check_job(run: TrainingRun) -> CheckJob:
    """Returns the job of a check pod: every stage, with its own keys."""
    identity = run.identity
    return CheckJob(
        owner=OwnerIdentity(namespace=identity.namespace, name=identity.name, uid=identity.uid),
        recipe=run.recipe,
        preset=run.preset,
        config=require_config(run.config),
        nodes=run.nodes,
        procs_per_node=run.procs_per_node,
        stages=[CheckedStage(stage=stage.name, epochs=stage.epochs, config=run.keys_of(stage)) for stage in run.stages],
    )


def _session_cache_bytes(run: TrainingRun) -> int:
    room = [run.session_cache.size_bytes * CACHE_FILL_SHARE]
    limit = run.resources.disk_limit
    if limit and run.session_cache.medium == "EmptyDir":
        room.append(parse_quantity(limit) * EPHEMERAL_FILL_SHARE)
    return max(1, int(min(room)))  # 0 would mean no limit


def _init_from(run: TrainingRun, instance: StageInstance, profile: StorageProfile) -> InitFrom | None:
    if instance.stage.init_uri:
        field = f"initFrom.uri of stage {instance.stage.name!r}"
        return _named(run, instance.stage.init_uri, field, profile)
    parent = run.parent_of(instance)
    return None if parent is None else InitFrom(manifests_prefix=instance_keys(run, parent).manifests_prefix)


def _resume_from(run: TrainingRun, instance: StageInstance, profile: StorageProfile) -> InitFrom | None:
    if not run.checkpoint.origin or instance.stage.name != run.stages[0].name:
        return None
    return _named(run, run.checkpoint.origin, "checkpoint.from", profile)


def _named(run: TrainingRun, uri: str, field: str, profile: StorageProfile) -> InitFrom:
    owner, namespace = str(run.identity), run.identity.namespace
    return parse_checkpoint_uri(uri, field=field, owner=owner, namespace=namespace, profile=profile)


def instance_keys(run: TrainingRun, instance: StageInstance) -> InstanceKeys:
    """Returns the object keys of one stage instance."""
    return InstanceKeys(run.identity.namespace, run.identity.uid, instance.stage.name, instance.seed)


def _queue_annotations(run: TrainingRun) -> dict[str, str]:
    if not run.scheduling.queue:
        return {}
    # Each attempt is a group of its own: no pod of it is ever replaced, and its quota is free once all have ended.
    return {names.Annotation.POD_GROUP_SIZE: str(run.nodes), names.Annotation.POD_RETRIABLE: "false"}


def _labels(run: TrainingRun, instance: StageInstance, attempt: int, rank: int) -> dict[str, str]:
    stage, seed = instance.stage.name, instance.seed
    labels = {
        names.Label.COMPONENT: "training",
        names.Label.ROLE: names.Role.TRAIN.value,
        names.Label.RUN: names.label_value(run.identity.name),
        names.Label.STAGE: stage,
        names.Label.SEED: str(seed),
        names.Label.ATTEMPT: str(attempt),
        names.Label.RANK: str(rank),
        names.Label.NODES: str(run.nodes),
    }
    if run.scheduling.queue:
        labels[names.Label.QUEUE_NAME] = run.scheduling.queue
        labels[names.Label.POD_GROUP] = names.pod_group_name(run.identity.name, stage, seed, attempt)
    return labels


def _rendezvous_env(run: TrainingRun, instance: StageInstance, attempt: int, rank: int) -> tuple[EnvVar, ...]:
    name, namespace = run.identity.name, run.identity.namespace
    first = names.training_pod_name(name, instance.stage.name, instance.seed, attempt, 0)
    threads = max(1, int(run.resources.cpus // run.procs_per_node))
    return (
        {"name": environment.NNODES, "value": str(run.nodes)},
        {"name": environment.NODE_RANK, "value": str(rank)},
        {"name": environment.NPROC_PER_NODE, "value": str(run.procs_per_node)},
        {"name": environment.MASTER_ADDR, "value": f"{first}.{names.rank_service_name(name)}.{namespace}.svc"},
        {"name": environment.MASTER_PORT, "value": str(environment.DEFAULT_MASTER_PORT)},
        {"name": "OMP_NUM_THREADS", "value": str(threads)},
    )


def _wandb_env(run: TrainingRun) -> tuple[EnvVar, ...]:
    if run.wandb is None or not run.wandb.secret_name:
        return ()
    reference = {"name": run.wandb.secret_name, "key": "api-key"}
    return ({"name": "WANDB_API_KEY", "valueFrom": {"secretKeyRef": reference}},)


def _logging(run: TrainingRun) -> LoggingPolicy:
    if run.wandb is None:
        return LoggingPolicy(tensorboard=run.tensorboard)
    return LoggingPolicy(
        tensorboard=run.tensorboard,
        wandb_project=run.wandb.project,
        wandb_mode="offline" if run.wandb.mode == "Offline" else "online",
    )


def _volumes(run: TrainingRun, rank: int) -> tuple[dict[str, Any], ...]:
    shm: dict[str, Any] = {"medium": "Memory"}
    if "memory" in run.resources.limits:  # its pages count against the container's memory anyway
        shm["sizeLimit"] = run.resources.limits["memory"]
    if run.session_cache.medium == "PersistentVolume":
        claim = {"claimName": claim_name(run, rank)}
        return ({"name": "session-cache", "persistentVolumeClaim": claim}, {"name": "shm", "emptyDir": shm})
    cache = {"sizeLimit": run.session_cache.size_limit}
    return ({"name": "session-cache", "emptyDir": cache}, {"name": "shm", "emptyDir": shm})


def _pod_spec(run: TrainingRun, name: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"hostname": name, "subdomain": names.rank_service_name(run.identity.name)}
    if run.scheduling.scheduler:
        spec["schedulerName"] = run.scheduling.scheduler
    if run.scheduling.priority_class:
        spec["priorityClassName"] = run.scheduling.priority_class
    return spec


def parse_checkpoint_uri(uri: str, *, field: str, owner: str, namespace: str, profile: StorageProfile) -> InitFrom:
    """Returns which checkpoint `uri` names: that of its last folder, or the newest valid one of a stage instance.

    Raises SpecError naming `owner` and `field` where it is no such address, or of another profile or namespace.
    """
    root = f"{profile.url}/"
    if not uri.startswith(root):
        raise SpecError(
            f"{owner}: {field} is {uri!r}, expected an address below {root}, the root of storage profile "
            f"{profile.name!r}; create a run with the profile that holds the checkpoint"
        )
    match = _KEY.fullmatch(f"{uri.removeprefix(root).rstrip('/')}/")
    if match is None:
        raise SpecError(
            f"{owner}: {field} is {uri!r}, expected {root}runs/<namespace>/<uid>/<stage>-s<seed>/ with or without "
            "checkpoints/<step>/<attempt>-<nonce>/; copy it from status.stages[].checkpoint.uri"
        )
    if match["namespace"] != namespace:
        raise SpecError(
            f"{owner}: {field} names a checkpoint of namespace {match['namespace']!r}, and a run may begin with those "
            f"of its own namespace {namespace!r} only; create the run there"
        )
    keys = InstanceKeys(namespace, match["uid"], match["stage"], int(match["seed"]))
    if match["step"] is None:
        return InitFrom(manifests_prefix=keys.manifests_prefix)
    prefix = f"{keys.checkpoints_prefix}{match['step']}/{match['attempt']}-{match['nonce']}/"
    return InitFrom(manifests_prefix=keys.manifests_prefix, checkpoint_prefix=prefix)
