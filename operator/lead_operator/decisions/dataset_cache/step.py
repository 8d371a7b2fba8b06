"""One step of a DatasetCache: what a decision changes, and how a build ends that cannot go on. Pure."""

from dataclasses import dataclass

from lead_operator.decisions.dataset_cache.build_health import NODE_LOSS_S
from lead_operator.decisions.dataset_cache.build_state import BuildState
from lead_operator.decisions.dataset_cache.verification import PublishRequest
from lead_operator.decisions.observed import ObservedBuild, ObservedPod
from lead_operator.decisions.plan import PodToDelete
from lead_operator.decisions.pod_removal import retire
from lead_operator.names import CachePhase
from lead_operator.resources.condition_status import FailureStatus
from lead_operator.resources.status_format import JsonObject

SOON_S = 1.0
STORAGE_UNAVAILABLE = "StorageUnavailable"  # what Ready then says is made of the error in `cache_status`


@dataclass(frozen=True)
class CacheStep:
    """What one decision changes."""

    phase: CachePhase
    reason: str
    message: str
    state: BuildState
    last_failure: FailureStatus | None
    deletes: tuple[PodToDelete, ...] = ()
    creates: tuple[JsonObject, ...] = ()
    claim: bool = False
    publish: PublishRequest | None = None
    requeue_after_s: float | None = None


def retire_pods(pods: tuple[ObservedPod, ...], observed: ObservedBuild) -> tuple[PodToDelete, ...]:
    """Returns the deletions of pods that are not needed any more."""
    return retire(pods, now=observed.now, node_loss_s=NODE_LOSS_S)


def fail_build(
    state: BuildState, failure: FailureStatus | None, observed: ObservedBuild, reason: str, message: str
) -> CacheStep:
    """Returns the step that ends a build for good."""
    deletes = retire_pods(observed.pods, observed)
    # The verdict is written before the pods go that it rests on: without them, another would follow.
    return CacheStep(CachePhase.FAILED, reason, message, state, failure, deletes=deletes, claim=bool(deletes))
