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
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from pydantic import ConfigDict, ValidationError

from lead_operator import metrics
from lead_operator.bucket.cache_facts import read_cache_facts
from lead_operator.bucket.instance_records import read_end, read_instances, read_restart_record, record_prefixes
from lead_operator.bucket.record_reader import RecordReader, Records
from lead_operator.bucket.stillness import Reading, Stillness
from lead_operator.bucket.store_errors import explain_store_error
from lead_operator.bucket.store_threads import StoreThreads
from lead_operator.decisions.observed import (
    BuildReport,
    ObservedBuildFailure,
    ObservedCacheManifest,
    ObservedInstance,
)
from lead_operator.decisions.plan import RunRecord
from lead_operator.decisions.remedies import operators_key
from lead_operator.memory import Memories, Part
from lead_operator.settings import Settings, StorageProfile
from lead_protocol import environment
from lead_protocol.manifests import MAX_MANIFEST_BYTES, Sha256
from lead_protocol.object_keys import BuildKeys, CacheKeys, ControlKeys, RunKeys
from lead_protocol.progress_record import parse_build
from lead_protocol.run_records import (
    MAX_RUN_RECORD_BYTES,
    RestartRecord,
    RunEnd,
    parse_failed_source,
    parse_published,
    parse_run_end,
)
from lead_protocol.store.credentials_chain import StoreNotConfigured
from lead_protocol.store.object_store import ObjectStore, StoreDenied, StoreError
from lead_protocol.store.open_store import open_store
from lead_protocol.store.s3_target import S3Limits
from lead_protocol.strict_model import StrictModel

READS = 8  # at a time
LIMITS = S3Limits(connect_s=3.0, read_s=5.0, total_s=10.0, longest_pause_s=2.0)
ANSWERS_FOR_S = 60.0  # after an answer, a store counts as there
REST_AFTER_ERROR_S = 5.0  # a store that is down is asked once in so long for each namespace
MAX_RECORD_BYTES = 64 * 1024
CONTROL_READS = 6  # in which a run's records below control/ are listed once

Answer = TypeVar("Answer")
OpenStore = Callable[[StorageProfile], ObjectStore]


@dataclass(frozen=True)
class BucketSnapshot:
    """The result of one read; with `error`, that of the last successful one."""

    error: str = ""
    instances: tuple[ObservedInstance, ...] = ()
    ended: RunEnd | None = None
    restart_record: RestartRecord | None = None
    result_digest: str = ""
    manifest: ObservedCacheManifest | None = None
    published_sha256: str = ""
    found_sha256: str = ""
    failure: ObservedBuildFailure | None = None
    reports: tuple[BuildReport, ...] = ()


@dataclass(frozen=True)
class EndSnapshot:
    """The operator's records of a run whose status reports an end."""

    error: str = ""  # why it could not be read
    ended: RunEnd | None = None
    any_record: bool = False


class BuildResult(StrictModel):
    """The record of which digest a generation of a DatasetCache came to; further keys are for people."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)
    digest: Sha256


@dataclass(frozen=True)
class ReadLimits:
    """What one snapshot may cost."""

    objects: int = 20_000  # of one resource, in one LIST
    control_age_s: float = 60.0  # nobody but an operator writes below control/; this process knows what it has written


@dataclass
class _Memory(Part):
    """What is kept of one resource between reads."""

    read_at: float = 0.0
    stillness: Stillness = field(default_factory=Stillness)
    live: frozenset[str] = frozenset()
    snapshot: BucketSnapshot = BucketSnapshot()
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
    ) -> None:  # fmt: skip
        self._open = open_profile or (lambda profile: open_profile_store(profile, settings))
        self._stores: dict[str, ObjectStore] = {}
        # (profile, namespace) -> until when, because of which error; what a team put there may be what is slow
        self._resting: dict[tuple[str, str], tuple[float, str]] = {}
        self._answered_at: dict[str, float] = {}  # profile -> monotonic time of its last good answer
        self._memories = memories or Memories()
        self._limits = limits or ReadLimits()
        self._now = now
        self._threads = StoreThreads(READS, "bucket")

    async def read_run(
        self, profile: StorageProfile, namespace: str, uid: str, instances: tuple[tuple[str, int], ...], *,
        live: frozenset[str], max_age_s: float, at_rest: bool = False, untouched: bool = False, erased: bool = False,
    ) -> BucketSnapshot:  # fmt: skip
        """Returns what the bucket holds of a run's stage instances, read now where a pod of `live` lives no more.

        Where nothing has changed for long, a snapshot `at_rest` may be older than `max_age_s`, see `stillness`.
        Of an `untouched` run it holds nothing: that is assumed without a first read while the store is known to
        respond. An `erased` one, whose status is empty, is read now.
        """
        keys = RunKeys(namespace, uid)
        untouched = untouched and self._memories.find(uid, _Memory) is None
        memory = self._memories.of(uid, _Memory)

        def read(store: ObjectStore, records: Records) -> BucketSnapshot:
            parts = record_prefixes(namespace, uid, instances)
            reader = RecordReader(store, records, keys.prefix, self._limits.objects, parts)
            control = memory.list_control(store, keys.control, self._limits, self._now(), fresh=erased)
            return BucketSnapshot(
                error=reader.excess or control.excess,
                instances=read_instances(reader, control, namespace, uid, instances),
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
        until, error = self._resting.get((profile.name, namespace), (0.0, ""))
        if started < until:
            return None, error
        loop = asyncio.get_running_loop()
        try:
            answer = await loop.run_in_executor(threads, ask, self.store(profile), *arguments)
            self._answered_at[profile.name] = started
            metrics.STORE_SECONDS.labels("ok").observe(self._now() - started)
            return answer, ""
        except StoreError as found:
            metrics.STORE_SECONDS.labels(type(found).__name__).observe(self._now() - started)
            error = explain_store_error(found) + (operators_key(profile) if isinstance(found, StoreDenied) else "")
            self._answered_at.pop(profile.name, None)
            self._resting[profile.name, namespace] = (self._now() + REST_AFTER_ERROR_S, error)
            if isinstance(found, StoreDenied):
                self.forget_store(profile)
            return None, error

    def store(self, profile: StorageProfile) -> ObjectStore:
        """Returns a profile's store with the operator's credentials; raises StoreError where they are missing."""
        if profile.name not in self._stores:
            self._stores[profile.name] = self._open(profile)
        return self._stores[profile.name]

    def forget_store(self, profile: StorageProfile) -> None:
        """Makes the next read reopen the store: a `ca.crt` may have been mounted since."""
        self._stores.pop(profile.name, None)


def open_profile_store(profile: StorageProfile, settings: Settings, limits: S3Limits = LIMITS) -> ObjectStore:
    """Opens a storage profile with the operator's own credentials; raises StoreError where they are missing."""
    environ: Mapping[str, str] = {
        environment.STORE_URL: profile.url,
        environment.STORE_ENDPOINT: profile.endpoint,
        environment.STORE_SECURE: "true" if profile.secure else "false",
        environment.STORE_REGION: profile.region,
        environment.STORE_ADDRESSING: profile.addressing,
    }
    folder = settings.credentials_dir / profile.name
    keys = [key for key in ("access-key", "secret-key") if not (folder / key).exists()]
    if len(keys) == 1:
        raise _no_secret(profile, keys)
    try:
        return open_store(environ, credentials_dir=folder, limits=limits)
    except StoreNotConfigured as error:
        if not keys or not profile.operator_secret:
            raise
        raise _no_secret(profile, keys) from error


def _no_secret(profile: StorageProfile, keys: list[str]) -> StoreNotConfigured:
    """Returns the error that names the Secret to create, by which people know it, not the mounted folder."""
    namespace, _, name = profile.operator_secret.rpartition("/")
    where = f"Secret {name or '(operatorSecret)'} in namespace {namespace or 'of the operator'}"
    return StoreNotConfigured(
        f"storage profile {profile.name}: no key {' and no key '.join(keys)} in {where}; create it with the keys "
        "access-key and secret-key (and ca.crt, where the store's certificate needs one)"
    )


def read_build(
    store: ObjectStore, records: Records, keys: BuildKeys, generation: int, *, shares: int, now: datetime,
    stages: Iterable[tuple[str, int]] = (),
) -> BucketSnapshot:  # fmt: skip
    """Reads a build's records, and the manifest of the cache that the operator has published for it."""
    parts = [keys.result(generation), keys.progress_prefix]  # beside them lies what is staged: thousands of objects
    reader = RecordReader(store, records, keys.prefix, ReadLimits.objects, parts, parts_alone=True)
    control = RecordReader(store, records, keys.control.prefix, ReadLimits.objects)
    published = control.parsed(keys.control.published(generation), parse_published, MAX_RUN_RECORD_BYTES)
    result = reader.parsed(keys.result(generation), _parse_result, MAX_RECORD_BYTES)
    digest = published.digest if published else result.digest if result else ""
    found = _read_manifest(store, records, CacheKeys(keys.namespace, digest)) if published else None
    expected_sha256 = published.manifest_sha256 if published else ""
    pods = [(stage, index) for stage, count in (*stages, ("", shares)) for index in range(count)]
    reports = tuple(_read_reports(reader, ((*pod, keys.progress(generation, pod[1], pod[0])) for pod in pods), now))
    return BucketSnapshot(
        error=reader.excess or control.excess,
        result_digest=digest,
        manifest=found if found is not None and found.sha256 == expected_sha256 else None,
        published_sha256=expected_sha256,
        found_sha256=found.sha256 if found is not None else "",
        failure=_read_failure(control, keys, generation),
        reports=reports,
    )


def _read_reports(reader: RecordReader, pods: Iterable[tuple[str, int, str]], now: datetime) -> Iterator[BuildReport]:
    """Yields the newest record of each share, and since when it is; a record that does not parse is none."""
    for stage, index, key in pods:
        parsed = reader.parsed(key, lambda data: (parse_build(data), now), MAX_RECORD_BYTES)  # parsed when it is new
        if parsed is not None and parsed[0] is not None:
            yield BuildReport(index, parsed[0], parsed[1], stage)


def _read_failure(control: RecordReader, keys: BuildKeys, generation: int) -> ObservedBuildFailure | None:
    """Returns the newest failure of a generation that the operator has recorded."""
    for key in sorted(control.keys_below(keys.control.failed_prefix(generation)), reverse=True):
        end, rebuilds = control.parsed(key, parse_run_end, MAX_RUN_RECORD_BYTES), key.rpartition("-")[2].split(".")[0]
        if end is not None and rebuilds.isascii() and rebuilds.isdigit():
            listed_at = keys.control.failed_source(generation, int(rebuilds))
            listed = control.parsed(listed_at, parse_failed_source, MAX_RUN_RECORD_BYTES)
            source = listed.sha256 if listed is not None else ""
            return ObservedBuildFailure(int(rebuilds), end.reason, end.message, end.ended_at, source)
    return None


def _read_manifest(store: ObjectStore, records: Records, keys: CacheKeys) -> ObservedCacheManifest | None:
    """Returns the facts of a published manifest, read once while its etag stays; None where it is none."""
    reader = RecordReader(store, records, keys.manifest, ReadLimits.objects)
    return reader.parsed(keys.manifest, read_cache_facts, MAX_MANIFEST_BYTES)


def _parse_result(data: bytes) -> BuildResult | None:
    try:
        return BuildResult.model_validate_json(data)
    except ValidationError:
        return None
