"""Manifests as a user writes them, for tests that apply them."""

from typing import Any

API_VERSION = "lead.dev/v1alpha1"
SMALL = {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "3Gi"}}


def a_dataset_cache(name: str, prefix: str, **spec: Any) -> dict[str, Any]:
    """Returns a DatasetCache over a raw tree in the bucket, built by two pods."""
    defaults = {
        "recipe": "lead",
        "source": {"prefix": prefix},
        "collections": ["full_pretrain", "full_posttrain"],
        "config": {"preset": "demo"},
        "build": {"parallelism": 2, "resources": SMALL},
    }
    return {"apiVersion": API_VERSION, "kind": "DatasetCache", "metadata": {"name": name}, "spec": {**defaults, **spec}}


def a_training_run(name: str, cache: str, **spec: Any) -> dict[str, Any]:
    """Returns a TrainingRun of the demo preset: two pods, one stage of two epochs; None leaves a field out."""
    defaults = {
        "recipe": "lead",
        "preset": "demo",
        "datasets": [{"cacheRef": {"name": cache}}],
        "nodes": 2,
        "procsPerNode": 1,
        "stages": [{"name": "pretrain", "epochs": 2}],
        "sessionCache": {"sizeLimit": "1Gi"},
        "resources": SMALL,
        "gracePeriodSeconds": 30,
    }
    fields = {key: value for key, value in {**defaults, **spec}.items() if value is not None}
    return {"apiVersion": API_VERSION, "kind": "TrainingRun", "metadata": {"name": name}, "spec": fields}
