"""Makes resources and observations for tests, with only what a test cares about spelled out.

Bodies are filled from the CRD files, so a test sees the same defaults as a user does.
"""

import copy
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from lead_operator.decisions.observed import ObservedCache, ObservedPod
from lead_operator.policy import Policy
from lead_operator.resources.crd_defaults import fill_defaults
from lead_operator.resources.dataset_cache import DatasetCache, parse_dataset_cache
from lead_operator.resources.training_run import TrainingRun, parse_training_run
from lead_operator.settings import Settings, StorageProfile

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
RUN_UID = "6a1b8f04-0000-4000-8000-000000000001"
CACHE_UID = "6a1b8f04-0000-4000-8000-000000000002"
DIGEST = "d1" * 32
PROFILE = StorageProfile(
    "default", "minio.lead:9000", "lead", secure=False, secret_name="lead-s3-default", shared=("datasets/", "weights/")
)
_EVERYTHING: dict[str, Any] = {each.name: ("*",) for each in fields(Policy) if each.name.startswith("allowed_")}
OPEN_POLICY = Policy(
    **_EVERYTHING, max_nodes=256, max_pods_per_run=4096, max_gpus_per_pod=10**6, max_build_pods=512
)  # lists have own tests
SETTINGS = Settings(
    trainer_image="registry.example/lead-trainer@sha256:" + "a" * 64,
    storage_profiles={"default": PROFILE},
    run_namespaces=("team-a",),
    policy=OPEN_POLICY,
)


def a_run_body(**spec: Any) -> dict[str, Any]:
    """Returns a TrainingRun body as the API server would hold it: one stage `train` of 4 epochs on 2 nodes."""
    asked: dict[str, Any] = {
        "recipe": "lead",
        "datasets": [{"cacheRef": {"name": "towns"}}],
        "nodes": 2,
        "stages": [{"name": "train", "epochs": 4}],
    }
    return _body("TrainingRun", "night-drive", RUN_UID, asked | copy.deepcopy(spec))


def a_training_run(**spec: Any) -> TrainingRun:
    """Returns the parsed form of `a_run_body`."""
    return parse_training_run(a_run_body(**spec))


def a_cache_body(*, generation: int = 1, **spec: Any) -> dict[str, Any]:
    """Returns a DatasetCache body as the API server would hold it, built by two pods."""
    asked: dict[str, Any] = {
        "recipe": "lead",
        "source": {"prefix": "datasets/towns"},
        "build": {"parallelism": 2},
    }
    body = _body("DatasetCache", "towns", CACHE_UID, asked | copy.deepcopy(spec))
    body["metadata"]["generation"] = generation
    return body


def a_dataset_cache(*, generation: int = 1, **spec: Any) -> DatasetCache:
    """Returns the parsed form of `a_cache_body`."""
    return parse_dataset_cache(a_cache_body(generation=generation, **spec))


def a_ready_cache(name: str = "towns", **fields: Any) -> ObservedCache:
    """Returns a complete cache as a run sees it."""
    values: dict[str, Any] = {"found": True, "recipe": "lead", "ready": True, "digest": DIGEST} | fields
    return ObservedCache(name=name, **values)


def a_pod(rank: int = 0, **fields: Any) -> ObservedPod:
    """Returns a running training pod of attempt 1 of stage `train`."""
    values: dict[str, Any] = {
        "role": "train",
        "stage": "train",
        "seed": 0,
        "attempt": 1,
        "phase": "Running",
        "node": f"node-{rank}",
        "created_at": NOW,
        "started_at": NOW,
    } | fields
    name = f"night-drive-{values['stage']}-s{values['seed']}-a{values['attempt']}-{rank}"
    values.setdefault("name", name)
    values.setdefault("uid", f"uid-of-{values['name']}")
    values.setdefault("ready", values["phase"] == "Running")
    if values["phase"] in ("Succeeded", "Failed"):
        values.setdefault("finished_at", NOW)
        values.setdefault("exit_code", 0 if values["phase"] == "Succeeded" else 1)
    return ObservedPod(rank=rank, **values)


def a_failed_pod(rank: int = 0, exit_code: int | None = 1, **fields: Any) -> ObservedPod:
    """Returns a training pod that ended with an exit code."""
    return a_pod(rank, **({"phase": "Failed", "exit_code": exit_code, "reason": "Error"} | fields))


def _body(kind: str, name: str, uid: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {
        "name": name,
        "namespace": "team-a",
        "uid": uid,
        "generation": 1,
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T12:00:00Z",
    }
    return fill_defaults({"apiVersion": "lead.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec})
