"""One pass over one resource: observe, decide, at most one confirming read, apply. The same for both kinds.

Called by the manager's workers, one at a time a key. A pass rests on nothing but what it sees: it may run twice, late,
or after a crash between any two lines. What differs by kind is in the two controllers.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from lead_operator.controllers.apply import Applier, CreateRefused
from lead_operator.controllers.controller import AnyObserved, AnyResource, Controller, PassMemory
from lead_operator.decisions.missed_events import Missed
from lead_operator.decisions.plan import EventNote, Plan
from lead_operator.decisions.rejected import decide_rejected
from lead_operator.errors import SpecError
from lead_operator.kube.api_errors import Conflict, Refused
from lead_operator.kube.client import KubeClient
from lead_operator.kube.copies import has_ended
from lead_operator.kube.copy_budget import CUT
from lead_operator.kube.event_recorder import EventRecorder
from lead_operator.kube.informers import Informers
from lead_operator.kube.kinds import POD, Kind, KubernetesObject, ResourceKey
from lead_operator.kube.object_reader import REJECTION
from lead_operator.memory import Memories
from lead_operator.resources.body import Identity, parse_identity
from lead_operator.resources.recipe_config import ConfigOmitted, Rejection
from lead_operator.resources.status_format import parse_status
from lead_operator.resources.stored import Stored, read_stored
from lead_operator.settings import Settings

COLLECTORS_FINALIZERS = {"orphan", "foregroundDeletion"}
AFTER_REJECTION_S = 2.0
AFTER_REFUSAL_S = 0.1  # status still reports a rejection that is over

log = structlog.get_logger(__name__)


@dataclass
class Reconciler:
    """What a pass needs: sources, writers, and the keys that must be read live first."""

    client: KubeClient
    informers: Informers
    controllers: Mapping[str, Controller[Any, Any]]  # by kind
    applier: Applier
    recorder: EventRecorder
    settings: Settings
    memories: Memories
    stale_keys: set[ResourceKey] = field(default_factory=set)  # a write's response was lost, or the copy was too old
    uids: dict[ResourceKey, str] = field(default_factory=dict)  # of the resource last seen under a key
    rejecting: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def reconcile(self, key: ResourceKey) -> float | None:
        """Makes one pass; returns in how many seconds the resource needs another pass, if at all."""
        if not self.informers.serves(key.namespace):
            self.informers.request_when_served(key)
            return None
        controller, live = self.controllers[key.kind], key in self.stale_keys
        body = await self._current(controller.kind, key)
        if body is None:
            self._forget(key)  # its children go with it, by their owner references
            return None
        stored = read_stored(body, key.kind)
        uid = stored.identity.uid
        if stored.deleted:
            return await self._after_deletion(controller, key, stored, body)
        if self.uids.setdefault(key, uid) != uid:
            self._forget(key)
            self.uids[key] = uid
        if REJECTION in body:
            return await self._reject(controller, stored, body[REJECTION])
        try:
            # From here until all responses have arrived, the copy may be older than our writes.
            self.stale_keys.add(key)
            try:
                again_s = await self._pass(controller, controller.parse(body), stored, live)
            except ConfigOmitted:  # before anything was written: no pod is planned without its config
                whole = await self._whole(controller.kind, stored)
                again_s = await self._pass(controller, controller.parse(whole), stored, live)
            self.stale_keys.discard(key)
        except SpecError as error:
            self.stale_keys.discard(key)
            return await self._reject(controller, stored, Rejection("SpecRefused", str(error)))
        return again_s

    async def _pass(
        self, controller: Controller[AnyResource, AnyObserved], resource: AnyResource, stored: Stored, live: bool
    ) -> float | None:
        memory = self.memories.of(resource.identity.uid, PassMemory)
        met, memory.met = memory.met, True
        if not met and (later_s := controller.rests_for_s(resource, stored)) is not None:
            return later_s
        namespace, previous = resource.identity.namespace, parse_status(controller.status, stored.status)
        await self._ask_for_unseen(namespace, controller.expected_pods(resource, previous))
        if live:
            await self._ask_for_unseen(namespace, controller.expected_pods(resource, previous, ended=True))
        observed = await controller.observe(resource, stored)
        plan = controller.decide(resource, observed)
        old = observed.rested and plan.status != observed.previous  # a hang, too, is decided only on a recent snapshot
        # Before another attempt: is the copy right that nothing of the last one is left?
        asked = controller.expected_pods(resource, previous, ended=True)
        unseen = (old or plan.claim_attempt) and not live and await self._ask_for_unseen(namespace, asked)
        if old or unseen:  # at most one confirming read
            observed = await controller.observe(resource, stored, young=True)
            plan = controller.decide(resource, observed)
        plan = await controller.record(resource, stored, plan)
        self._announce(memory, stored.identity, controller.missed_events(observed, plan))
        controller.follow(resource, observed, plan)
        again_s = await self._apply(controller.kind, memory, stored, plan)
        # While pods work, the bucket is where the news is, and it sends no events.
        reading_s = observed.next_reading_s or self.settings.progress_s
        return again_s if all(pod.terminal for pod in observed.pods) else min(again_s or reading_s, reading_s)

    async def _apply(
        self, kind: Kind, memory: PassMemory, stored: Stored, plan: Plan
    ) -> float | None:  # fmt: skip
        try:
            again_s = await self.applier.apply(kind, stored, plan)
        except CreateRefused as error:  # the next pass reports it; its backoff grows with each rejection
            memory.refusal = (stored.identity.generation, str(error))
            raise
        refused, memory.refusal = memory.refusal[1], (0, "")
        return AFTER_REFUSAL_S if refused else again_s

    def _announce(self, memory: PassMemory, identity: Identity, missed: Iterable[Missed] | None) -> None:
        """Sends events of before this process, once: the process that wrote the status may have died before."""
        if missed is not None and not memory.announced:
            memory.announced = True
            for note, happened in missed:
                self.recorder.announce(identity, note, happened)

    async def _after_deletion(
        self, controller: Controller[Any, Any], key: ResourceKey, stored: Stored, body: KubernetesObject
    ) -> float | None:
        """Lets a deleted resource take with it what it holds, and drops what is kept of it."""
        if controller.finalizer and controller.finalizer in stored.finalizers:
            self.uids.setdefault(key, stored.identity.uid)
            return await controller.finalize(controller.parse(body), stored)
        if _stays_for_others(stored):
            await self._stop_pods(stored.identity)
        self._forget(key)  # its children go with it, by their owner references
        return None

    async def _stop_pods(self, identity: Identity) -> None:
        """Stops the pods of a deleted resource that a finalizer of somebody else keeps, and with it its children."""
        namespace = identity.namespace
        for pod in self.informers.of(POD, namespace).owned_by(namespace, identity.uid):
            if not has_ended(pod):
                await self.client.delete(POD, namespace, pod["metadata"]["name"], uid=pod["metadata"]["uid"])

    async def _reject(self, controller: Controller[Any, Any], stored: Stored, rejection: Rejection) -> float | None:
        """Reports on a resource why it is not served; its next version is treated like any other.

        One at a time: a status on an object of 1.5 MB takes the API server seconds and a hundred megabytes.
        """
        identity, held = stored.identity, parse_status(controller.status, stored.status)
        log.warning("resource_rejected", resource=str(identity), reason=rejection.reason)
        self.recorder.record(identity, EventNote("Warning", rejection.reason, rejection.message))
        plan = decide_rejected(
            rejection, held, controller.not_ended, generation=identity.generation, now=self.client.clock.now()
        )
        if plan.status != stored.status and self.rejecting.locked():
            return AFTER_REJECTION_S
        try:
            async with self.rejecting:
                return await self.applier.apply(controller.kind, stored, plan)
        except (
            Refused
        ) as error:  # at the limit of what etcd stores there is no space for a status: the event reports it
            log.warning("rejection_not_written", resource=str(identity), error=str(error))
            return None

    async def _ask_for_unseen(self, namespace: str, expected: Iterable[str]) -> bool:
        """Reads live the pods that should be there and are not in the copy; returns whether there is one.

        The copy may be older than the resource. Only what the server does not hold either counts as gone; how a pod
        ended decides which budget pays for it. Of a resource that had to be read live because its copy was too old, and
        before another attempt, pods of an attempt that has ended are asked for too.
        """
        copies = self.informers.of(POD, namespace)
        unseen = [name for name in expected if copies.get(namespace, name) is None]
        answers = await asyncio.gather(*(self.client.get(POD, namespace, name) for name in unseen))
        found = [pod for pod in answers if pod is not None]
        for pod in found:
            copies.note_own_write(pod)
        return bool(found)

    async def _current(self, kind: Kind, key: ResourceKey) -> KubernetesObject | None:
        """Returns a resource as the copy has it; as the server has it where the copy is cut, or not to be trusted."""
        informer = self.informers.of(kind, key.namespace)
        copy = informer.get(key.namespace, key.name)
        if key in self.stale_keys:
            body = await self.client.get(kind, key.namespace, key.name)
            if body is None:
                informer.forget(key.namespace, key.name)
            else:
                informer.note_own_write(body)
            self.stale_keys.discard(key)
        else:
            cut = copy is not None and CUT in copy
            body = await self.client.get(kind, key.namespace, key.name) if cut else copy
        return body

    async def _whole(self, kind: Kind, stored: Stored) -> KubernetesObject:
        """Returns a resource with every `config`; raises Conflict where it differs from the copy."""
        identity = stored.identity
        whole = await self.client.get(kind, identity.namespace, identity.name, whole=True)
        if whole is None or parse_identity(whole, kind.kind) != identity:
            raise Conflict(409, "Conflict", f"{identity} has changed since it was seen")
        return whole

    def _forget(self, key: ResourceKey) -> None:
        if (uid := self.uids.pop(key, None)) is not None:
            self.memories.forget(uid)


def _stays_for_others(stored: Stored) -> bool:
    """Returns whether a deleted resource waits for a finalizer that is neither ours nor the garbage collector's own."""
    others = set(stored.finalizers) - COLLECTORS_FINALIZERS
    return bool(others) and "orphan" not in stored.finalizers  # it asks that children stay
