"""How fast a build goes and how long it may still take. Pure.

Pods that make a shard tell samples per second and seconds left themselves: all of them together, and the last of them,
are what a person waits for. Where one tells nothing, the shards that were complete at two looks must do. Either way a
mark is kept in status: when it was made, and what was complete then. It moves on when something was completed and half
a minute has passed, so that rate and time left change with news and not with the clock.
"""

from collections.abc import Sequence
from typing import Any

from lead_operator.decisions.figures import format_duration, format_rate, format_size, format_time, seconds_since
from lead_operator.decisions.observed import ObservedBuild
from lead_protocol.progress_record import BuildRecord

MARK_S = 30.0
MAX_LEFT_S = 10 * 365 * 86400


def build_speed(observed: ObservedBuild, before: dict[str, Any]) -> dict[str, Any]:
    """Returns status.build.speed: the mark, and rate and time left where two marks were seen."""
    done = sum(r.shards_done for r in observed.records)
    total = max((r.shards_total for r in observed.records), default=0)
    size_bytes = sum(r.size_bytes for r in observed.records)
    samples = sum(r.samples_done for r in observed.records)
    marked_s = seconds_since(before.get("time"), observed.now)
    marked_done, marked_bytes = int(before.get("shards") or 0), int(before.get("bytes") or 0)
    if not total:
        return {}
    told = _told(observed.records)
    mark = {"time": format_time(observed.now), "shards": done, "bytes": size_bytes, "samples": samples, **told}
    if marked_s is None or done < marked_done or size_bytes < marked_bytes:
        return mark
    if (told and "samplesPerSecond" not in before) or samples < int(before.get("samples") or 0):
        return mark
    moved = done > marked_done or (told and samples > int(before.get("samples") or 0))
    if not moved or marked_s < MARK_S:
        return before
    if told:
        return mark
    left_s = marked_s / (done - marked_done) * max(0, total - done)
    rate = (size_bytes - marked_bytes) / marked_s
    return {**mark, "bytesPerSecond": int(rate), "rate": f"{format_size(int(rate))}/s", "eta": format_duration(left_s)}


def _told(records: Sequence[BuildRecord]) -> dict[str, Any]:
    """What the pods that work tell of themselves; empty where one that is not done tells nothing."""
    working = [record for record in records if record.phase not in ("Done", "Failed")]
    rates = [record.samples_per_s for record in working if record.samples_per_s is not None]
    left_s = [record.eta_s for record in working if record.eta_s is not None]
    if not working or len(rates) < len(working):
        return {}
    told: dict[str, Any] = {"samplesPerSecond": round(sum(rates), 2), "rate": format_rate(sum(rates))}
    if len(left_s) == len(working) and max(left_s) <= MAX_LEFT_S:
        told["eta"] = format_duration(max(left_s))
    return told
