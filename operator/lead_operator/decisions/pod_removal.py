"""How pods are stopped, of runs and of builds alike. Pure."""

from collections.abc import Iterable
from datetime import datetime

from lead_operator.decisions.failure_policy import is_lost
from lead_operator.decisions.observed import ObservedPod
from lead_operator.decisions.plan import PodToDelete


def retire(pods: Iterable[ObservedPod], *, now: datetime, node_loss_s: float) -> tuple[PodToDelete, ...]:
    """Returns the deletions that stop these pods: with their own grace, or by force where the node is lost."""
    deletes = []
    for pod in pods:
        if pod.terminal and not pod.lingers:
            continue
        if is_lost(pod, now=now, node_loss_s=node_loss_s):
            deletes.append(remove(pod, grace_period_s=0))
        elif not pod.deleting:
            deletes.append(remove(pod))
    return tuple(deletes)


def remove(pod: ObservedPod, grace_period_s: int | None = None) -> PodToDelete:
    """Returns the deletion of a pod as it was seen."""
    return PodToDelete(pod.name, pod.uid, grace_period_s, pod.version)


def remove_ended(pods: Iterable[ObservedPod]) -> tuple[PodToDelete, ...]:
    """Returns the deletions of those pods whose work has ended."""
    return tuple(remove(pod) for pod in pods if pod.terminal and not pod.deleting)


def once_each(*deletes: PodToDelete) -> tuple[PodToDelete, ...]:
    """Returns the deletions without those of the same pod; the later one counts."""
    return tuple({each.uid: each for each in deletes}.values())
