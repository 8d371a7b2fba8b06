"""Shows what the operator would create for a manifest, without a cluster: `lead-operator render FILE`.

Defaults come from the CRD files, the storage profile is a placeholder unless settings are given, and every cache
counts as complete, so that the first attempt of every stage instance can be shown.
"""

import sys
from pathlib import Path
from typing import Any

import yaml

from lead_operator import names
from lead_operator.errors import SpecError
from lead_operator.near_names import explain_unknown_profile
from lead_operator.objects.build_pod import build_cache_pod
from lead_operator.objects.pod_skeleton import KubernetesObject
from lead_operator.objects.service_and_claims import build_rank_service, build_session_cache_claim
from lead_operator.objects.training_pod import build_training_pod
from lead_operator.resources.crd_defaults import fill_defaults
from lead_operator.resources.dataset_cache import DatasetCache, parse_dataset_cache
from lead_operator.resources.training_run import TrainingRun, parse_training_run
from lead_operator.settings import Settings, StorageProfile
from lead_protocol.job import DatasetSource

UNKNOWN_UID = "00000000-0000-0000-0000-000000000000"
UNKNOWN_DIGEST = "0" * 64


def render(file: Path | str, settings: Settings | None = None) -> list[KubernetesObject]:
    """Returns the objects for every TrainingRun and DatasetCache in a file (`-`: standard input).

    Raises SpecError naming object and field where the file is no such manifest.
    """
    text = sys.stdin.read() if str(file) == "-" else _read(Path(file))
    try:
        documents = [d for d in yaml.safe_load_all(text) if d is not None]
    except yaml.YAMLError as error:
        raise SpecError(f"{file} is not YAML: {error}") from error
    objects: list[KubernetesObject] = []
    for document in documents:
        objects += render_body(document, settings)
    return objects


def render_body(body: Any, settings: Settings | None = None) -> list[KubernetesObject]:
    """Returns the objects for one resource body."""
    if not isinstance(body, dict) or body.get("apiVersion") != names.API_VERSION:
        found = body.get("apiVersion") if isinstance(body, dict) else type(body).__name__
        raise SpecError(f"the manifest's apiVersion is {found!r}, expected {names.API_VERSION}")
    filled = fill_defaults(body)
    filled["metadata"].setdefault("uid", UNKNOWN_UID)
    if filled["kind"] == names.TRAINING_RUN_KIND:
        return _render_run(parse_training_run(filled), settings)
    return _render_cache(parse_dataset_cache(filled), settings)


def to_yaml(objects: list[KubernetesObject]) -> str:
    """Returns the objects as one YAML stream."""
    return yaml.safe_dump_all(objects, sort_keys=False)


def _render_run(run: TrainingRun, settings: Settings | None) -> list[KubernetesObject]:
    settings, profile = _place(settings, run.storage_profile)
    objects = [build_rank_service(run)]
    if run.session_cache.medium == "PersistentVolume":
        objects += [build_session_cache_claim(run, rank) for rank in range(run.nodes)]
    datasets = {name: DatasetSource(name=name, digest=UNKNOWN_DIGEST) for name in run.datasets}
    objects += [
        build_training_pod(run, instance, attempt=1, rank=rank, datasets=datasets, profile=profile, settings=settings)
        for instance in run.instances
        for rank in range(run.nodes)
    ]
    return objects


def _render_cache(cache: DatasetCache, settings: Settings | None) -> list[KubernetesObject]:
    settings, profile = _place(settings, cache.storage_profile)
    return [
        build_cache_pod(cache, stage=stage, attempt=1, index=index, profile=profile, settings=settings)
        for stage in cache.stages
        for index in range(stage.workers)
    ]


def _place(settings: Settings | None, name: str) -> tuple[Settings, StorageProfile]:
    if settings is None:
        profile = StorageProfile(name, "minio.example:9000", "lead", secret_name=f"lead-s3-{name}")
        return Settings(trainer_image="lead-trainer", storage_profiles={name: profile}), profile
    if name not in settings.storage_profiles:
        raise SpecError(explain_unknown_profile(name, settings.storage_profiles))
    return settings, settings.storage_profiles[name]


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError as error:
        raise SpecError(f"{file} cannot be read: {error}; name a file with a TrainingRun or DatasetCache") from error
