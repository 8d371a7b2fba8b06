"""Carries out a Plan against the API server, in an order in which a crash on any line loses nothing.

Called by `controllers.reconciler` at the end of each pass. First the raised attempt, by compare-and-swap, then deletes,
then creates, then status; events are left to be sent. Every answer goes back into the informers' copies, so the next
pass sees our own writes; where a response was lost, the caller reads live before it decides again.
"""

import asyncio
import copy
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import structlog

from lead_operator import metrics, names
from lead_operator.controllers.controller import RefusedTries
from lead_operator.decisions.plan import EventNote, Plan
from lead_operator.kube.api_errors import AlreadyExists, ApiError, Conflict, Refused, UndeclaredFields
from lead_operator.kube.client import KubeClient
from lead_operator.kube.event_recorder import EventRecorder
from lead_operator.kube.informers import Informers
from lead_operator.kube.kinds import (
    CLAIM,
    DATASET_CACHE,
    POD,
    TRAINING_RUN,
    Kind,
    KubernetesObject,
    kind_named,
    kind_of,
    owner_of,
)
from lead_operator.memory import Memories, Part
from lead_operator.resources.body import Identity
from lead_operator.resources.status_format import JsonObject, parse_status
from lead_operator.resources.stored import Stored, read_stored
from lead_operator.resources.training_run_status import RestartsStatus, TrainingRunStatus

STATUS_PAUSE_S = 10.0  # between status writes of one resource that are not urgent

log = structlog.get_logger(__name__)


class CreateRefused(Exception):
    """The API server does not take a child of ours: quota, admission, a name that is taken; people must know."""


class NameTaken(CreateRefused):
    """A child's name is held by an object that is not ours (yet): try again later."""


@dataclass
class _Writes(Part):
    """What is kept of the writes for one resource."""

    status_at: float = -math.inf  # monotonic time of the last status write
    refused_status: tuple[str, dict[str, Any]] | None = None  # version of the object, and what it did not take


class Applier:
    """Writes for one operator process."""

    def __init__(
        self,
        client: KubeClient,
        recorder: EventRecorder,
        informers: Informers,
        memories: Memories | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._informers = informers
        self._memories = memories or Memories()
        self._now = now

    async def apply(self, kind: Kind, stored: Stored, plan: Plan) -> float | None:
        """Carries out `plan` for a resource as it was seen; returns in how many seconds to make the next pass.

        Raises Conflict where that is not the newest any more, Unreachable or Refused where a call failed, and
        CreateRefused where a child was not taken: then status and events are written all the same.
        """
        owner = stored.identity
        namespace = owner.namespace
        if plan.finalizer is not None:
            stored = await self.set_finalizer(kind, stored, plan.finalizer)  # before there is any data to remove
        if plan.claim_attempt:
            stored = read_stored(await self._write_status(kind, stored, plan.status, quiet=True), kind.kind)
        for pod in plan.deletes:
            await self._client.delete(
                POD, namespace, pod.name, uid=pod.uid, version=pod.version, grace_period_s=pod.grace_period_s
            )
        for claim in plan.claim_deletes:
            await self._client.delete(CLAIM, namespace, claim.name, uid=claim.uid)
        for each in plan.annotates:
            await self._client.annotate(POD, namespace, each.name, uid=each.uid, key=each.key, value=each.value)
        refused: CreateRefused | None = None
        try:
            await self._create_all(owner, plan.creates)
        except CreateRefused as error:
            refused = error
        for child in plan.tries:
            await self._try(owner, child)
        wait_s = await self._report(kind, stored, plan)
        for note in plan.events:
            self._recorder.record(owner, note)
        if refused is not None:
            raise refused
        if plan.delete_self:
            await self._client.delete(kind, namespace, owner.name, uid=owner.uid)
        return min((s for s in (wait_s, plan.requeue_after_s) if s is not None), default=None)

    async def set_finalizer(self, kind: Kind, stored: Stored, wanted: bool) -> Stored:
        """Adds or removes the finalizer of a cache's data; returns the updated object."""
        others = [f for f in stored.finalizers if f != names.CACHE_DATA_FINALIZER]
        finalizers = [*others, names.CACHE_DATA_FINALIZER] if wanted else others
        written = await self._client.set_finalizers(kind, stored, finalizers)
        if wanted or others or not stored.deleted:
            self._informers.of(kind, stored.identity.namespace).note_own_write(written)
        return read_stored(written, kind.kind)

    async def _report(self, kind: Kind, stored: Stored, plan: Plan) -> float | None:
        writes = self._writes_for(stored.identity)
        if plan.status == stored.status or writes.refused_status == (stored.version, plan.status):
            return None
        wait_s = writes.status_at + STATUS_PAUSE_S - self._now()
        if wait_s > 0 and not plan.urgent:
            return wait_s
        written = await self._write_status(kind, stored, plan.status)
        if has_more(written.get("status", {}), plan.status):  # fields that somebody else has written are theirs
            written = await self._client.replace_status(kind, written, plan.status)
            self._informers.of(kind, stored.identity.namespace).note_own_write(written, quiet=False)
        if written.get("status", {}) != plan.status:
            # The server holds another status than it was asked for: writing the same again would change nothing, so it
            # is left until the object changes.
            writes.refused_status = (written["metadata"]["resourceVersion"], plan.status)
        return None

    async def _write_status(
        self, kind: Kind, stored: Stored, status: dict[str, Any], *, quiet: bool = False
    ) -> KubernetesObject:
        try:
            written = await self._client.apply_status(kind, stored, status)
        except UndeclaredFields as error:
            written = await self._client.apply_status(kind, stored, without_fields(status, error.paths))
            fields = ", ".join(".".join(path) for path in error.paths)
            message = f"the installed CRD lacks {fields}, which are left out; apply the crds/ of this release"
            self._recorder.record(stored.identity, EventNote("Warning", "CustomResourceDefinitionOutdated", message))
        _count_restarts(stored.status, written.get("status", {}))
        self._writes_for(stored.identity).status_at = self._now()
        self._informers.of(kind, stored.identity.namespace).note_own_write(written, quiet=quiet)
        return written

    async def _create_all(self, owner: Identity, bodies: tuple[KubernetesObject, ...]) -> None:
        # A pod is not scheduled before its PersistentVolumeClaim exists; everything else may be created in any order.
        claims = [body for body in bodies if body["kind"] == CLAIM.kind]
        for together in (claims, [body for body in bodies if body["kind"] != CLAIM.kind]):
            answers = await asyncio.gather(*(self._create(owner, body) for body in together), return_exceptions=True)
            failures = [answer for answer in answers if answer is not None]
            if failures:
                if type(failures[0]) is CreateRefused:  # NameTaken was already recorded where it was detected
                    self._recorder.record(owner, EventNote("Warning", "FailedCreate", str(failures[0])))
                raise failures[0]

    async def _try(self, owner: Identity, body: KubernetesObject) -> None:
        """Creates a child that nothing depends on; where it is refused, this process does not ask again."""
        name, refused = body["metadata"]["name"], self._memories.of(owner.uid, RefusedTries).why
        if name in refused:
            return
        try:
            await self._create(owner, body)
        except NameTaken:
            return  # the next pass sees whether the name is free
        except CreateRefused as error:
            refused[name] = str(error)
            log.info("not_created", resource=f"{owner.namespace}/{name}", error=str(error))

    def _writes_for(self, owner: Identity) -> _Writes:
        return self._memories.of(owner.uid, _Writes)

    async def _create(self, owner: Identity, body: KubernetesObject) -> None:
        kind, metadata = kind_of(body), body["metadata"]
        adopted = False
        try:
            stored = await self._client.create(body)
        except AlreadyExists:
            stored, adopted = await self._adopt(owner, body), True
        except Refused as error:
            raise CreateRefused(f"{kind.kind} {metadata['name']}: {error.message}") from error
        self._informers.of(kind, metadata["namespace"]).note_own_write(stored, quiet=not adopted)

    async def _adopt(self, owner: Identity, body: KubernetesObject) -> KubernetesObject:
        kind, namespace, name = kind_of(body), body["metadata"]["namespace"], body["metadata"]["name"]
        found = await self._client.get(kind, namespace, name)
        if found is None:
            raise NameTaken(f"{kind.kind} {namespace}/{name} was there a moment ago")
        reference = owner_of(found) or {}
        if not reference and owner_of(body) is None and body["metadata"]["labels"].items() <= _labels(found).items():
            return found  # several owners share it
        if reference.get("uid") == owner.uid:
            return found
        if (reference.get("kind"), reference.get("name")) == (owner.kind, owner.name):
            await self._require_live(owner)
            # Its owner had our owner's name and is gone: the garbage collector would delete it too, only later.
            await self._client.delete(kind, namespace, name, uid=found["metadata"]["uid"])
            raise NameTaken(f"{kind.kind} {namespace}/{name} belongs to an earlier {owner.kind}; it is being deleted")
        ours = reference.get("kind") in (TRAINING_RUN.kind, DATASET_CACHE.kind)
        holder = f", but to {reference['kind']} {reference['name']}" if ours else "; delete or rename it"
        message = f"{kind.kind} {name} exists and does not belong to this {owner.kind}{holder}"
        self._recorder.record(owner, EventNote("Warning", "NameTaken", message))
        raise NameTaken(message)

    async def _require_live(self, owner: Identity) -> None:
        """Raises Conflict where the owner's name is another resource's: of a later one, to a process that slept."""
        live = await self._client.get(kind_named(owner.kind), owner.namespace, owner.name)
        if live is None or live["metadata"]["uid"] != owner.uid:
            raise Conflict(409, "Conflict", f"{owner} is gone")


def without_fields(status: dict[str, Any], paths: Iterable[tuple[str, ...]]) -> dict[str, Any]:
    """Returns a status without fields that an older CRD does not know; a path through a list means each of its items.

    Example: `without_fields({"stages": [{"name": "a", "new": 1}]}, [("status", "stages", "new")])`.
    """
    kept = copy.deepcopy(status)
    for path in paths:
        holders: list[Any] = [kept]
        for name in path[1:-1]:
            below = [holder.get(name) for holder in holders if isinstance(holder, dict)]
            holders = [item for found in below for item in (found if isinstance(found, list) else [found])]
        for holder in holders:
            if isinstance(holder, dict):
                holder.pop(path[-1], None)
    return kept


def has_more(held: Any, wanted: Any) -> bool:
    """Returns whether a status holds fields or list entries that are not in the wanted one; values are not compared."""
    if isinstance(held, dict) and isinstance(wanted, dict):
        return any(key not in wanted or has_more(value, wanted[key]) for key, value in held.items())
    if isinstance(held, list) and isinstance(wanted, list):
        return len(held) > len(wanted) or any(has_more(*both) for both in zip(held, wanted, strict=False))
    return False


def _count_restarts(before: JsonObject, after: JsonObject) -> None:
    """Counts what a status write has recorded; a rejected one is decided again, and counts nothing."""
    old, new = (parse_status(TrainingRunStatus, status).restarts or RestartsStatus() for status in (before, after))
    counts = {
        "program": new.program - old.program,
        "infrastructure": new.infrastructure - old.infrastructure,
        "voluntary": new.voluntary - old.voluntary,
    }
    for kind, more in counts.items():
        if more > 0 and before:
            metrics.RESTARTS.labels(kind).inc(more)


def _labels(found: KubernetesObject) -> dict[str, str]:
    return dict(found["metadata"].get("labels", {}))


def is_worth_retrying(error: Exception) -> bool:
    """Distinguishes errors of the environment, which may pass, from our own bugs, which must be seen."""
    return isinstance(error, (ApiError, CreateRefused))
