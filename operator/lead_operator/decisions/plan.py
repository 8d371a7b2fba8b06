"""What a decision asks the world to become; carried out in order by `controllers.apply`, idempotently.

Order: what an erased status would lose goes to the bucket (`records`, by `controllers.reconciler`), then a raised or
ended attempt is written to status by compare-and-swap (`claim_attempt`), then deletes, then creates, then the final
status and the events. A crash anywhere leaves a state from which the next pass decides alike.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from lead_operator.decisions.failure_policy import is_lost
from lead_operator.decisions.observed import ObservedPod
from lead_operator.resources.status_format import JsonObject

MAX_EVENT_MESSAGE = 1024  # characters; the API server refuses longer ones
SOON_S = 1.0  # until the next pass, where something is about to change


@dataclass(frozen=True)
class PodToDelete:
    """A pod to delete, unless it has changed since it was seen: then it may have ended, or its node come back."""

    name: str
    uid: str
    grace_period_s: int | None = None  # None: the pod's own; 0: force, for a node that is gone
    version: str = ""  # as it was seen


@dataclass(frozen=True)
class ClaimToDelete:
    """A volume claim to delete, by UID precondition; the next pass recreates it."""

    name: str
    uid: str
    why: str  # a sentence for people


@dataclass(frozen=True)
class PodToAnnotate:
    """A pod to annotate, by UID precondition."""

    name: str
    uid: str
    key: str
    value: str


@dataclass(frozen=True)
class RunRecord:
    """A create-only object of a run's folder in the bucket, which is written before the status reports its content."""

    key: str
    data: bytes
    final: bool = False  # the verdict: where another stands already, that one counts
    counts: bool = False  # restarts: a status that is ahead of them marks a store outage


@dataclass(frozen=True)
class EventNote:
    """A Kubernetes event on the resource; deduplicated by (uid, reason, message) and rate-limited when sent."""

    type: str  # Normal | Warning
    reason: str
    message: str


@dataclass(frozen=True)
class PublishRequest:
    """Which staged cache to publish for which build, and what it must be of; an equal one is the same request."""

    namespace: str
    uid: str
    generation: int
    rebuilds: int
    digest: str
    recipe: str
    collections: tuple[str, ...]  # empty: the recipe's own choice
    config: str  # JSON
    source_prefix: str  # empty: raw data on a volume, which the operator cannot see


@dataclass(frozen=True)
class Plan:
    """The next step of one resource."""

    status: JsonObject  # the whole status as it should read; written only if it differs
    records: tuple[RunRecord, ...] = ()
    publish: PublishRequest | None = None  # have the staged cache published, beside the passes
    claim_attempt: bool = False  # status raises or ends an attempt: write it, if unchanged, before acting
    deletes: tuple[PodToDelete, ...] = ()
    claim_deletes: tuple[ClaimToDelete, ...] = ()
    creates: tuple[JsonObject, ...] = ()  # complete Kubernetes objects, in order
    tries: tuple[JsonObject, ...] = ()  # objects that are not missed where the API server does not take them
    annotates: tuple[PodToAnnotate, ...] = ()
    events: tuple[EventNote, ...] = ()
    requeue_after_s: float | None = None  # next pass at the latest after this time
    urgent: bool = field(default=False)  # something important changed: write status now
    finalizer: bool | None = None  # whether to add (True) or remove (False) the finalizer of a cache's data
    delete_self: bool = False  # ttlSecondsAfterFinished is over: delete the resource itself, by UID precondition

    @property
    def acts(self) -> bool:
        """Whether it asks for anything but a status."""
        deletes = self.deletes or self.claim_deletes or self.delete_self
        return bool(self.claim_attempt or deletes or self.creates or self.tries or self.annotates or self.events)


def retire(pods: Iterable[ObservedPod], *, now: datetime, node_loss_s: float) -> tuple[PodToDelete, ...]:
    """Returns the deletions that stop these pods: with their own grace, or by force where the node is lost."""
    deletes = []
    for pod in pods:
        if pod.terminal and not pod.kept_by_sidecar:
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


def earliest(*waits_s: float | None) -> float | None:
    """Returns the shortest of several waits; None where there is none."""
    return min((wait_s for wait_s in waits_s if wait_s is not None), default=None)
