"""The volume claim in which rank k keeps its session cache over restarts and stages."""

from typing import Any

from lead_operator import names
from lead_operator.objects.pod_skeleton import KubernetesObject, common_labels, owner_reference
from lead_operator.resources.training_run import TrainingRun


def build_session_cache_claim(run: TrainingRun, rank: int) -> KubernetesObject:
    """Returns the claim of one rank, for sessionCache.medium PersistentVolume."""
    identity = run.identity
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": run.session_cache.size_limit}},
    }
    if run.session_cache.storage_class:
        spec["storageClassName"] = run.session_cache.storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": names.session_cache_claim_name(identity.name, rank),
            "namespace": identity.namespace,
            "labels": {
                **common_labels(identity),
                names.Label.RUN: names.label_value(identity.name),
                names.Label.RANK: str(rank),
            },
            "ownerReferences": [owner_reference(identity)],
        },
        "spec": spec,
    }
