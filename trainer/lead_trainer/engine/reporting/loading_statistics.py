"""What the session caches and loaders of all ranks have counted, for rank 0 to report.

Every step of a group waits for its slowest rank, so one node with a full disk is everybody's news. Each rank's figures
ride on the vote that `hooks` holds after every step anyway: no step has a collective more, and nobody is waited for who
was not waited for before. Ranks share no counters: each has those of its own process and its loader's workers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lead_protocol.manifests import MAX_COUNT
from lead_protocol.progress_record import MAX_DEGRADED_RANKS
from lead_trainer.data.loader import Loader
from lead_trainer.data.loader_stats import STAGES
from lead_trainer.data.session_cache import CacheStats, DirectReads
from lead_trainer.engine.samples.dataset import Dataset
from lead_trainer.world import World

_READS = ("cache_reads", "cache_first_reads", "cache_fetched")
_AS_THEY_ARE = ("cache_fetched_bytes", "cache_second_bytes", "cache_corrupt")  # as they are
_FETCH_S = "cache_fetch_s"
_MB = 1e6


@dataclass(frozen=True)
class _Totals:
    """The figures of all ranks, by the names of the progress record."""

    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("cache_hits", "cache_misses", *_AS_THEY_ARE), 0)
    )
    fetch_s: float = 0.0
    stages: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    degraded_ranks: tuple[int, ...] = ()


class LoadingStatistics:
    """The figures of one rank, and the sums over all of them as they were last taken."""

    def __init__(self, world: World, dataset: Dataset, loader: Loader) -> None:
        self._world, self._dataset, self._loader = world, dataset, loader
        self._newest = self._shown = _Totals()
        self._shown_fetch_s, self._shown_batches = 0.0, 0  # of this rank alone
        self._keeps_shards = not isinstance(dataset.session, DirectReads)

    def row(self) -> list[float]:
        """Returns this rank's figures; the sums of all ranks' rows are what `take` takes.

        The last numbers, one a rank, are 1 where that rank's session cache cannot be used.
        """
        counters, stages = self._dataset.counters(), self._loader.stats().by_stage()
        degraded = [0.0] * self._world.world_size
        degraded[self._world.rank] = float(counters.get("cache_degraded", False))
        counted = [float(counters.get(name, 0)) for name in (*_READS, *_AS_THEY_ARE, _FETCH_S)]
        return [*counted, *(stages[name] for name in STAGES), *degraded]

    def take(self, sums: Sequence[float]) -> None:
        """Notes the sums of all ranks' rows."""
        numbers = iter(sums)
        reads, first_reads, fetched = (round(next(numbers)) for _ in _READS)
        together = CacheStats(reads=reads, first_reads=first_reads, fetched=fetched)  # a rank fetches for others, too
        counts = {"cache_hits": together.hits, "cache_misses": together.misses}
        counts |= {name: round(next(numbers)) for name in _AS_THEY_ARE}
        self._newest = _Totals(
            {name: min(count, MAX_COUNT) for name, count in counts.items()},
            round(next(numbers), 3),
            {name: round(next(numbers), 3) for name in STAGES},
            tuple(rank for rank, is_degraded in enumerate(numbers) if is_degraded),
        )

    def reported(self) -> dict[str, Any]:
        """Returns what the progress record shows; of the loaders alone where no dataset is read.

        Without a session cache every record comes from the store: no read hits or misses anything.
        """
        totals = self._totals()
        if self._dataset.session is None:
            return {"loading_s": totals.stages}
        return {
            **{name: count for name, count in totals.counts.items() if self._keeps_shards or name in _AS_THEY_ARE},
            _FETCH_S: totals.fetch_s,
            "cache_degraded": bool(totals.degraded_ranks),
            "cache_degraded_ranks": list(totals.degraded_ranks[:MAX_DEGRADED_RANKS]),
            "loading_s": totals.stages,
        }

    def scalars(self) -> dict[str, float]:
        """Returns the scalars of the event file; rates are of what came since the last call.

        `cache/…` is of all ranks; `data/fetch_ms`, milliseconds a batch, of this one, as the loader's other times are.
        """
        if self._dataset.session is None:
            return {}
        now, before = self._totals(), self._shown
        hits, misses = (now.counts[name] - before.counts[name] for name in ("cache_hits", "cache_misses"))
        fetch_s, batches = float(self._dataset.counters()[_FETCH_S]), self._loader.stats().batches
        scalars = {
            "cache/fetched_mb": now.counts["cache_fetched_bytes"] / _MB,
            "cache/second_mb": now.counts["cache_second_bytes"] / _MB,
            "cache/degraded": float(len(now.degraded_ranks)),
        }
        if self._keeps_shards and hits + misses > 0:
            # Records of shards that were there count as first reads too, until others are fetched.
            scalars["cache/hit_rate"] = max(0.0, hits / (hits + misses))
        if batches > self._shown_batches:
            scalars["data/fetch_ms"] = 1000 * (fetch_s - self._shown_fetch_s) / (batches - self._shown_batches)
            self._shown_fetch_s, self._shown_batches = fetch_s, batches
        self._shown = now
        return scalars

    def _totals(self) -> _Totals:
        if self._world.world_size == 1:
            self.take(self.row())  # nobody else is asked, so between two votes too
        return self._newest
