"""The headless service in which the ranks of a run find each other by name, before they are ready."""

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
