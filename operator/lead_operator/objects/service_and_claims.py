"""What the pods of a run share: the service in which ranks find each other, and the claims of their session caches."""

from typing import Any

from lead_operator import names
from lead_operator.objects.pod_skeleton import KubernetesObject, common_labels, owner_reference
from lead_operator.resources.training_run import TrainingRun
from lead_protocol import environment


def build_rank_service(run: TrainingRun) -> KubernetesObject:
    """Returns the one service of a run; all attempts and stages share it, because pod names differ."""
    identity = run.identity
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": names.rank_service_name(identity.name),
            "namespace": identity.namespace,
            "labels": {**common_labels(identity), names.Label.RUN: names.label_value(identity.name)},
            "ownerReferences": [owner_reference(identity)],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {names.Label.OWNER_UID: identity.uid, names.Label.ROLE: names.Role.TRAIN.value},
            "ports": [
                {
                    "name": "rendezvous",
                    "protocol": "TCP",
                    "port": environment.DEFAULT_MASTER_PORT,
                    "targetPort": environment.DEFAULT_MASTER_PORT,
                }
            ],
        },
    }


def claim_name(run: TrainingRun, rank: int) -> str:
    """Returns the name of one rank's claim: the run's own, or that of every run that names the same shared claim."""
    if run.session_cache.shared_claim:
        return names.shared_cache_claim_name(run.session_cache.shared_claim, rank)
    return names.session_cache_claim_name(run.identity.name, rank)


def build_session_cache_claim(run: TrainingRun, rank: int) -> KubernetesObject:
    """Returns the claim of one rank, for sessionCache.medium PersistentVolume; a shared one has no owner and stays."""
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": run.session_cache.size_limit}},
    }
    if run.session_cache.storage_class is not None:
        spec["storageClassName"] = run.session_cache.storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": claim_name(run, rank),
            "namespace": run.identity.namespace,
            **(_of_all_runs(run, rank) if run.session_cache.shared_claim else _of_one_run(run, rank)),
        },
        "spec": spec,
    }


def _of_all_runs(run: TrainingRun, rank: int) -> dict[str, Any]:
    labels = {names.Label.APP: names.APP_NAME, names.Label.MANAGED_BY: names.FIELD_MANAGER}
    return {"labels": {**labels, names.Label.SHARED_CLAIM: run.session_cache.shared_claim, names.Label.RANK: str(rank)}}


def _of_one_run(run: TrainingRun, rank: int) -> dict[str, Any]:
    labels = {names.Label.RUN: names.label_value(run.identity.name), names.Label.RANK: str(rank)}
    return {
        "labels": {**common_labels(run.identity), **labels},
        "ownerReferences": [owner_reference(run.identity)],
    }
