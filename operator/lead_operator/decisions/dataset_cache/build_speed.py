"""How fast a build goes and how long it may still take. Pure.

Pods that build a shard report samples per second and seconds left themselves: their sum, and the longest,
are shown. If one reports nothing, the rate follows from the complete shards of two snapshots. Either way a
mark is kept in status: when it was made, and what was complete then. It moves on when something was completed and half
a minute has passed, so that rate and time left change with news and not with the clock.
"""

from collections.abc import Sequence
from dataclasses import replace

from lead_operator.decisions.formatting import format_time, seconds_since
from lead_operator.decisions.observed import ObservedBuild
from lead_operator.resources.dataset_cache_status import BuildSpeed
from lead_protocol.progress_record import BuildRecord

MARK_S = 30.0
MAX_LEFT_S = 10 * 365 * 86400


def build_speed(observed: ObservedBuild, before: BuildSpeed | None) -> BuildSpeed | None:
    """Returns status.build.speed: the mark, and rate and time left where two marks were seen."""
    done = sum(r.shards_done for r in observed.records)
    total = max((r.shards_total for r in observed.records), default=0)
    if not total:
        return None
    mark = BuildSpeed(
        time=format_time(observed.now),
        shards=done,
        bytes=sum(r.size_bytes for r in observed.records),
        samples=sum(r.samples_done for r in observed.records),
    )
    reported = _with_reported_rate(mark, observed.records)
    marked_s = seconds_since(before.time, observed.now) if before is not None else None
    if before is None or marked_s is None or done < before.shards or mark.bytes < before.bytes:
        return reported or mark
    if (reported and before.milli_samples_per_second is None) or mark.samples < before.samples:
        return reported or mark
    moved = done > before.shards or (reported and mark.samples > before.samples)
    if not moved or marked_s < MARK_S:
        return before
    if reported:
        return reported
    left_s = marked_s / (done - before.shards) * max(0, total - done)
    rate = int((mark.bytes - before.bytes) / marked_s)
    return replace(mark, bytes_per_second=rate, eta_seconds=int(left_s))


def _with_reported_rate(mark: BuildSpeed, records: Sequence[BuildRecord]) -> BuildSpeed | None:
    """Returns the mark with the rate that working pods report; None where one that is not done reports none."""
    working = [record for record in records if record.phase not in ("Done", "Failed")]
    rates = [record.samples_per_s for record in working if record.samples_per_s is not None]
    left_s = [record.eta_s for record in working if record.eta_s is not None]
    if not working or len(rates) < len(working):
        return None
    known = len(left_s) == len(working) and max(left_s) <= MAX_LEFT_S
    return replace(
        mark,
        milli_samples_per_second=round(1000 * sum(rates)),
        eta_seconds=int(max(left_s)) if known else None,
    )
