"""The network: what comes from the store into an empty session cache, as in the first epoch of a node.

Nothing is begun after the deadline, so that a cache of any size is measured in seconds; what is on its way is finished.
What came is all that the other stages read.
"""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import structlog

from lead_protocol.manifests import ShardEntry, StoredObject
from lead_trainer.bench.advice import Kept, StageRate
from lead_trainer.bench.deadlines import each_until
from lead_trainer.contract.samples import Indices, Samples
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.record import Record
from lead_trainer.data.sample_order import in_turn
from lead_trainer.data.session_cache import CacheStats, SessionCache
from lead_trainer.data.shards_ahead import AT_ONCE
from lead_trainer.data.water_marks import HIGH, room_bytes

OWN_FOLDERS = ("shards", "diskcache")  # of the backends, in a session cache's folder
Place = tuple[StoredObject, int]  # shard, slot

log = structlog.get_logger(__name__)


class WatchedCache:
    """A session cache that notes which shards it has fetched."""

    def __init__(self, inner: SessionCache) -> None:
        self._inner = inner
        self.fetched: dict[str, StoredObject] = {}

    @property
    def tables(self) -> Path | None:
        """Folder of the shared tables."""
        return self._inner.tables

    def record(self, shard: StoredObject, slot: int, sample: int | None = None) -> Record:
        """Returns one record."""
        return self._inner.record(shard, slot, sample)

    def fetch(self, shard: StoredObject) -> bool:
        """Fetches a shard to the disk and notes it."""
        there = self._inner.fetch(shard)
        if there:
            self.fetched[shard.sha256] = shard
        return there

    def stats(self) -> CacheStats:
        """Returns the counters."""
        return self._inner.stats()

    def close(self) -> None:
        """Lets go of the files."""
        self._inner.close()


@dataclass(frozen=True)
class FetchedSamples:
    """What the network stage measured, and what it left on the disk."""

    rate: StageRate
    places: Sequence[Place]  # records on the disk
    shards: Indices | None  # by the samples' numbers, where shards are kept whole


def measure_network(
    samples: Samples, readers: Sequence[CacheReader], session: WatchedCache, threads: int, seconds: float
) -> FetchedSamples:
    """Fetches shards of an epoch's draw, a few at once as training does, and begins none after `seconds`.

    Where none is kept whole, records are read one by one by `threads`.
    """
    entries = [entry for reader in readers for entry in reader.manifest.shards]
    fetched_samples = _shards(samples, samples.epoch_draw(0), entries, session, seconds)
    if fetched_samples is not None:
        return fetched_samples
    return _records(entries, session, threads, seconds)


def kept_of(readers: Sequence[CacheReader], disk: Path | None, limit_bytes: int) -> Kept:
    """Returns what the session cache in `disk` (None: there is none) can keep; what lies in it already makes way."""
    whole = sum(entry.object.size for reader in readers for entry in reader.manifest.shards)
    if disk is None:
        return Kept(0.0, whole)
    held = sum(_bytes_below(disk / name) for name in OWN_FOLDERS)
    room = max(0, room_bytes(disk, HIGH) + held)
    return Kept(min(1.0, (min(room, limit_bytes) if limit_bytes else room) / max(1, whole)), whole)


def _shards(
    samples: Samples, draw: Indices, entries: Sequence[ShardEntry], session: WatchedCache, seconds: float
) -> FetchedSamples | None:
    """Returns None where no shard is kept whole."""
    shard_of = samples.shards_of(draw)
    if shard_of is None:
        return None
    turns, here = in_turn(shard_of).tolist(), list[int]()

    def fetch(shard: int) -> None:
        if samples.fetch_shard(shard):
            here.append(shard)

    took_s = each_until(
        fetch, turns, AT_ONCE, seconds, lambda: _print_progress(session, len(here), len(turns), "shards")
    )
    fetched = session.stats().fetched_bytes
    if not fetched or not here:
        return None
    known = {entry.object.sha256: entry for entry in entries}
    places = [(shard, slot) for sha256, shard in session.fetched.items() for slot in range(known[sha256].records)]
    shards = np.array(here, np.int64)
    detail = f"{fetched / took_s / 1e6:.0f} MB/s from the store, {len(here)} of {len(turns)} shards"
    return FetchedSamples(StageRate("network", np.isin(shard_of, shards).sum() / took_s, detail), places, shards)


def _records(entries: Sequence[ShardEntry], session: WatchedCache, threads: int, seconds: float) -> FetchedSamples:
    places = [(entry.object, slot) for entry in entries for slot in range(entry.records)]
    before, read = session.stats().fetched_bytes, list[Place]()

    def record(place: Place) -> None:
        session.record(*place)
        read.append(place)

    took_s = each_until(
        record, places, threads, seconds, lambda: _print_progress(session, len(read), len(places), "records")
    )
    fetched = session.stats().fetched_bytes - before
    detail = f"{fetched / took_s / 1e6:.0f} MB/s from the store, {len(read)} of {len(places)} records, one by one"
    return FetchedSamples(StageRate("network", len(read) / took_s, detail), _on_disk(session, read, seconds), None)


def _on_disk(session: WatchedCache, places: Sequence[Place], seconds: float) -> list[Place]:
    """Returns the places that are read without the store, as far as `seconds` reach."""
    found, begin = list[Place](), time.perf_counter()
    for place in places:
        before = session.stats().fetched_bytes
        session.record(*place)
        if session.stats().fetched_bytes == before:
            found.append(place)
        if time.perf_counter() - begin > seconds:
            break
    return found


def _print_progress(session: WatchedCache, done: int, whole: int, what: str) -> None:
    log.info(
        "bench: still at the network", **{what: f"{done} of {whole}"}, fetched_mb=session.stats().fetched_bytes // 10**6
    )


def _bytes_below(folder: Path) -> int:
    size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # another run made room
                size += (Path(parent) / name).stat().st_size
    return size
