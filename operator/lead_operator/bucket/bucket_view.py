"""Reads the buckets, rarely and little: one LIST per resource, and a GET of each record whose etag is new.

Called by both controllers when the last snapshot is too old or the pods have changed since. Of a run with very many
objects only the folders with records are listed. What it reads was written by pods and is hostile until parsed: sizes
are capped, models strict, and names inside are compared with the key's.
It writes only the few records that must exist before a run's status reports them. A store that does not answer is an
observation (`store_error`), not an exception.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from lead_operator import metrics
from lead_operator.bucket.bucket_snapshot import BucketSnapshot, EndSnapshot, ReadLimits
from lead_operator.bucket.build_records import read_build
from lead_operator.bucket.closed_loop_results import read_drives
from lead_operator.bucket.instance_records import read_end, read_instances, read_restart_record, record_prefixes
from lead_operator.bucket.profile_store import open_profile_store
from lead_operator.bucket.record_reader import RecordReader, Records
from lead_operator.bucket.stillness import Reading, Stillness
from lead_operator.bucket.store_backoff import StoreBackoff
from lead_operator.bucket.store_errors import explain_store_error
from lead_operator.bucket.store_threads import StoreThreads
from lead_operator.decisions.observed import (
    ObservedInstance,
)
from lead_operator.decisions.plan import RunRecord
from lead_operator.decisions.remedies import operators_key
from lead_operator.memory import Memories, Part
from lead_operator.settings import Settings, StorageProfile
from lead_protocol.object_keys import BuildKeys, ControlKeys, RunKeys
from lead_protocol.store.object_store import ObjectStore, StoreDenied, StoreError

READS = 8  # at a time
ANSWERS_FOR_S = 60.0  # after an answer, a store counts as there
AFTER_ERROR_S = 5.0  # a store that is down is asked once in so long for each namespace
CONTROL_READS = 6  # in which a run's records below control/ are listed once

Answer = TypeVar("Answer")
OpenStore = Callable[[StorageProfile], ObjectStore]


@dataclass
class _Memory(Part):
    """What is kept of one resource between reads."""

    read_at: float = 0.0
    stillness: Stillness = field(default_factory=Stillness)
    live: frozenset[str] = frozenset()
    snapshot: BucketSnapshot = field(default_factory=BucketSnapshot)
    records: Records = field(default_factory=Records)
    written: set[str] = field(default_factory=set)  # keys of control records, by this process
    control: RecordReader | None = None  # the run's records as last listed
    control_listed_at: float = 0.0

    def list_control(
        self, store: ObjectStore, keys: ControlKeys, limits: ReadLimits, now: float, *, fresh: bool
    ) -> RecordReader:
        """Returns a run's records below `control/`, listed now where they may be others than last time."""
        control = self.control
        old = now - self.control_listed_at > max(limits.control_age_s, CONTROL_READS * self.stillness.rests_s)
        if fresh or control is None or control.store is not store or old:
            control = RecordReader(store, self.records, keys.prefix, limits.objects)
            self.control, self.control_listed_at = control, now
        return control

    def note_read(self, snapshot: BucketSnapshot, started: float, live: frozenset[str]) -> None:
        """Takes a snapshot that started then; new pods will change more than has stood still so far."""
        self.stillness.note(started, changed=snapshot != self.snapshot or not live <= self.live)
        self.snapshot, self.read_at, self.live = snapshot, started, live


class BucketView:
    """The buckets of all storage profiles, as far as the resources at hand need them."""

    def __init__(
        self, settings: Settings, open_profile: OpenStore | None = None, memories: Memories | None = None,
        limits: ReadLimits | None = None, now: Callable[[], float] = time.monotonic,
        backoff: StoreBackoff | None = None,
    ) -> None:  # fmt: skip
        self._open = open_profile or (lambda profile: open_profile_store(profile, settings))
        self._stores: dict[str, ObjectStore] = {}
        self._backoff = backoff or StoreBackoff(AFTER_ERROR_S, now)
        self._answered_at: dict[str, float] = {}  # profile -> monotonic time of its last good answer
        self._memories = memories or Memories()
        self._limits = limits or ReadLimits()
        self._now = now
        self._threads = StoreThreads(READS, "bucket")

    async def read_run(
        self, profile: StorageProfile, namespace: str, uid: str, instances: tuple[tuple[str, int], ...], *,
        live: frozenset[str], max_age_s: float, at_rest: bool = False, untouched: bool = False, erased: bool = False,
        drives: bool = False,
    ) -> BucketSnapshot:  # fmt: skip
        """Returns what the bucket holds of a run's stage instances, read now where a pod of `live` lives no more.

        Where nothing has changed for long, a snapshot `at_rest` may be older than `max_age_s`, see `stillness`.
        Of an `untouched` run it holds nothing: that is assumed without a first read while the store is known to
        respond. An `erased` one, whose status is empty, is read now. `drives`: results of its closed loop, too.
        """
        keys = RunKeys(namespace, uid)
        untouched = untouched and self._memories.find(uid, _Memory) is None
        memory = self._memories.of(uid, _Memory)

        def read(store: ObjectStore, records: Records) -> BucketSnapshot:
            parts = record_prefixes(namespace, uid, instances, drives=drives)
            reader = RecordReader(store, records, keys.prefix, self._limits.objects, parts)
            control = memory.list_control(store, keys.control, self._limits, self._now(), fresh=erased)
            return BucketSnapshot(
                error=reader.excess or control.excess,
                instances=read_instances(reader, control, namespace, uid, instances),
                drives=read_drives(reader, namespace, uid, instances) if drives else (),
                ended=read_end(control, keys.control),
                restart_record=read_restart_record(control, keys.control),
            )

        if untouched and self._now() - self._answered_at.get(profile.name, -math.inf) < ANSWERS_FOR_S:
            # Known to be empty, and not unknown: a status that reports more was written by somebody else.
            empty = BucketSnapshot(instances=tuple(ObservedInstance(stage, seed) for stage, seed in instances))
            memory.note_read(empty, self._now(), live)
            return memory.snapshot
        if at_rest and live <= memory.live:
            max_age_s = max(max_age_s, memory.stillness.rests_s)
        return await self._read(profile, namespace, uid, live, 0.0 if erased else max_age_s, read)

    def reading_of(self, uid: str) -> Reading:
        """Returns how old the last snapshot at a resource is, and how long its bucket may rest after it."""
        memory = self._memories.find(uid, _Memory)
        if memory is None:
            return Reading(math.inf, 0.0)
        return Reading(self._now() - memory.read_at, memory.stillness.rests_s)

    async def read_recorded_end(self, profile: StorageProfile, namespace: str, uid: str) -> EndSnapshot:
        """Returns the operator's record of a run's end, and whether it has recorded anything of that run."""
        keys = ControlKeys(namespace, uid)

        def read(store: ObjectStore) -> EndSnapshot:
            control = RecordReader(store, Records(), keys.prefix, self._limits.objects)
            return EndSnapshot(control.excess, read_end(control, keys), any(control.keys_below(keys.prefix)))

        snapshot, error = await self._ask(profile, namespace, read)
        return EndSnapshot(error) if snapshot is None else snapshot

    async def read_build(
        self,
        profile: StorageProfile,
        namespace: str,
        uid: str,
        generation: int,
        *,
        shares: int,
        now: datetime,
        live: frozenset[str],
        max_age_s: float,
        stages: Iterable[tuple[str, int]] = (),
    ) -> BucketSnapshot:
        """Returns what the bucket holds of a DatasetCache's build and of the cache it came to.

        A pod's report is new `now` if its record differs from that of the previous read. `stages` are those before the
        last, each with its number of shares.
        """

        def read(store: ObjectStore, records: Records) -> BucketSnapshot:
            keys = BuildKeys(namespace, uid)
            return read_build(store, records, keys, generation, shares=shares, now=now, stages=stages)

        live |= {f"generation {generation}"}  # it ends, too
        return await self._read(profile, namespace, uid, live, max_age_s, read)

    async def record(
        self, profile: StorageProfile, namespace: str, uid: str, records: tuple[RunRecord, ...]
    ) -> tuple[bool, str]:
        """Writes what is not there yet; returns whether no other verdict stands, and why the store took nothing.

        After an end that was recorded already the run is read again at once.
        """

        memory = self._memories.of(uid, _Memory)
        control, memory.control = (
            memory.control,
            None,
        )  # listed again where one of these is not written, or written by another

        def write(store: ObjectStore) -> bool:
            stands, all_ours = True, control is not None and control.store is store
            for record in records:
                if record.key not in memory.written or record.final:
                    ours = store.create(record.key, record.data)
                    stands = stands and (ours or not record.final)
                    memory.written.add(record.key)
                    if ours and control is not None:
                        control.note_created(record.key, record.data)
                    all_ours = all_ours and ours
            memory.control = control if all_ours else None
            return stands

        stands, error = await self._ask(profile, namespace, write)
        if stands is False:
            memory.read_at = 0.0
        return stands is not False, error

    def expire(self, uid: str) -> None:
        """Makes the next pass of a resource read its bucket, however recent the last read is."""
        memory = self._memories.find(uid, _Memory)
        if memory is not None:
            memory.read_at = 0.0

    def close(self) -> None:
        """Lets running reads finish and starts no more."""
        self._threads.close()

    async def _read(
        self, profile: StorageProfile, namespace: str, uid: str, live: frozenset[str], max_age_s: float,
        read: Callable[[ObjectStore, Records], BucketSnapshot],
    ) -> BucketSnapshot:  # fmt: skip
        memory = self._memories.of(uid, _Memory)
        started = self._now()
        if memory.read_at and memory.live <= live and started - memory.read_at < max_age_s:
            memory.live = live
            return memory.snapshot
        snapshot, error = await self._ask(profile, namespace, read, memory.records)
        if snapshot is None:
            return replace(memory.snapshot, error=error)
        memory.note_read(replace(memory.snapshot, error=snapshot.error) if snapshot.error else snapshot, started, live)
        return memory.snapshot

    async def _ask(
        self, profile: StorageProfile, namespace: str, ask: Callable[..., Answer], *arguments: object
    ) -> tuple[Answer | None, str]:
        """Returns what a thread got from a profile's store; None and why where it failed, now or just before."""
        pool = self._threads.pool(profile.name)
        async with pool.turns.turn(namespace):
            return await self._ask_now(pool.threads, profile, namespace, ask, *arguments)

    async def _ask_now(
        self, threads: ThreadPoolExecutor, profile: StorageProfile, namespace: str,
        ask: Callable[..., Answer], *arguments: object,
    ) -> tuple[Answer | None, str]:  # fmt: skip
        started = self._now()
        if (recent := self._backoff.error(profile.name, namespace)) is not None:
            return None, _explain(recent, profile)
        loop = asyncio.get_running_loop()
        try:
            answer = await loop.run_in_executor(threads, ask, self.store(profile), *arguments)
            self._answered_at[profile.name] = started
            metrics.STORE_SECONDS.labels("ok").observe(self._now() - started)
            return answer, ""
        except StoreError as found:
            metrics.STORE_SECONDS.labels(type(found).__name__).observe(self._now() - started)
            self._answered_at.pop(profile.name, None)
            self._backoff.note(profile.name, namespace, found)
            if isinstance(found, StoreDenied):
                self.forget_store(profile)
            return None, _explain(found, profile)

    def store(self, profile: StorageProfile) -> ObjectStore:
        """Returns a profile's store with the operator's credentials; raises StoreError where they are missing."""
        if profile.name not in self._stores:
            self._stores[profile.name] = self._open(profile)
        return self._stores[profile.name]

    def forget_store(self, profile: StorageProfile) -> None:
        """Makes the next read reopen the store: a `ca.crt` may have been mounted since."""
        self._stores.pop(profile.name, None)


def _explain(error: StoreError, profile: StorageProfile) -> str:
    return explain_store_error(error) + (operators_key(profile) if isinstance(error, StoreDenied) else "")
