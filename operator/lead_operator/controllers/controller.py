"""What the two controllers have in common: the parts of a pass that differ by kind, and what both need for them.

`controllers.reconciler` runs the pass; `controllers.training_run` and `controllers.dataset_cache` hold these methods,
in this order.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeVar

from lead_operator.decisions.conditions import Finding
from lead_operator.decisions.missed_events import Missed
from lead_operator.decisions.observed import ObservedPod
from lead_operator.decisions.plan import Plan
from lead_operator.kube.kinds import Kind, KubernetesObject
from lead_operator.memory import Memories, Part
from lead_operator.resources.body import Identity
from lead_operator.resources.status_format import JsonObject, ResourceStatus
from lead_operator.resources.stored import Stored
from lead_operator.settings import Settings

AFTER_END_S = 1.0


class Resource(Protocol):
    """A resource as its parser returns it."""

    @property
    def identity(self) -> Identity:
        """Who it is."""


class Observed(Protocol):
    """An observation of a resource, as far as both kinds share it."""

    @property
    def now(self) -> datetime:
        """When it was seen."""

    @property
    def pods(self) -> tuple[ObservedPod, ...]:
        """Its own pods."""

    @property
    def previous(self) -> JsonObject:
        """The status as last read."""

    @property
    def rested(self) -> bool:
        """Whether the bucket was read longer ago than usual, because it stood still."""

    @property
    def next_reading_s(self) -> float | None:
        """Seconds until the bucket is read again; None: as usual."""


AnyResource = TypeVar("AnyResource", bound=Resource)
AnyObserved = TypeVar("AnyObserved", bound=Observed)


class Controller(Protocol[AnyResource, AnyObserved]):
    """The parts of a pass over a resource of one kind."""

    @property
    def kind(self) -> Kind:
        """The kind of resource."""

    @property
    def status(self) -> type[ResourceStatus]:
        """The model of its status."""

    @property
    def not_ended(self) -> Sequence[Finding]:
        """The end conditions of a resource that has not ended."""

    @property
    def finalizer(self) -> str:
        """What keeps a deleted resource until `finalize` is through; empty: nothing."""

    def parse(self, body: KubernetesObject) -> AnyResource:
        """Returns a body as its spec reads; raises SpecError."""

    def rests_for_s(self, resource: AnyResource, stored: Stored) -> float | None:
        """Returns for how long a resource may wait that this process sees for the first time; None: not at all."""

    def expected_pods(self, resource: AnyResource, status: Any, *, ended: bool = False) -> Iterable[str]:
        """Yields the names of the pods that were there, by status, and whose end is not accounted for.

        `ended`: instead, those of attempts that have ended and will have another.
        """

    async def observe(self, resource: AnyResource, stored: Stored, *, young: bool = False) -> AnyObserved:
        """Returns what copies and bucket hold now; `young`: also where the bucket could rest, it is read."""

    def decide(self, resource: AnyResource, observed: AnyObserved) -> Plan:
        """Returns the next step; pure."""

    async def record(self, resource: AnyResource, stored: Stored, plan: Plan) -> Plan:
        """Writes the plan's records; returns the plan to apply; raises Conflict for a stale observation."""

    def follow(self, resource: AnyResource, observed: AnyObserved, plan: Plan) -> None:
        """Remembers what was decided, and asks for the work that goes on beside the passes."""

    def missed_events(self, observed: AnyObserved, plan: Plan) -> Iterable[Missed] | None:
        """Returns the events that an earlier process may have died before sending; None: not known yet."""

    async def finalize(self, resource: AnyResource, stored: Stored) -> float | None:
        """Makes one step of a deleted resource's cleanup; returns when to continue, if at all."""


@dataclass
class PassMemory(Part):
    """What is kept of the passes over one resource."""

    met: bool = False  # this process has passed over it
    announced: bool = False  # its earlier events were sent
    refusal: tuple[int, str] = (0, "")  # generation of a spec, and why its newest children were not taken


@dataclass
class RefusedTries(Part):
    """Names of children that nothing depends on and that the API server does not take, and why."""

    why: dict[str, str] = field(default_factory=dict)


def refusal_of(memories: Memories, identity: Identity) -> str:
    """Returns why the API server did not take the newest children of a spec; empty where it did."""
    generation, why = memories.of(identity.uid, PassMemory).refusal
    return why if generation == identity.generation else ""


def snapshot_age_s(pods: tuple[ObservedPod, ...], settings: Settings) -> float:
    """Returns how old a snapshot of the bucket may be: pods that have just ended leave their final report there."""
    ended = bool(pods) and all(pod.terminal for pod in pods)
    return min(AFTER_END_S, settings.progress_s) if ended else settings.progress_s


def live_uids(pods: tuple[ObservedPod, ...]) -> frozenset[str]:
    """Pods whose end makes a read of the bucket due at once: they may have left a report. Earlier reports can wait."""
    return frozenset(pod.uid for pod in pods if not pod.terminal)
