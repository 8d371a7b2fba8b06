"""How fast a build goes and how long it may still take, from the shards that were complete at two looks. Pure.

A mark is kept in status: when it was made, and what was complete then. It moves on when something was completed and
half a minute has passed, so that rate and time left change with news and not with the clock.
"""

from typing import Any

from lead_operator.decisions.figures import format_duration, format_size, format_time, seconds_since
from lead_operator.decisions.observed import ObservedBuild

MARK_S = 30.0


def build_speed(observed: ObservedBuild, before: dict[str, Any]) -> dict[str, Any]:
    """Returns status.build.speed: the mark, and rate and time left where two marks were seen."""
    done = sum(r.shards_done for r in observed.records)
    total = max((r.shards_total for r in observed.records), default=0)
    size_bytes = sum(r.size_bytes for r in observed.records)
    marked_s = seconds_since(before.get("time"), observed.now)
    marked_done, marked_bytes = int(before.get("shards") or 0), int(before.get("bytes") or 0)
    if not total:
        return {}
    mark = {"time": format_time(observed.now), "shards": done, "bytes": size_bytes}
    if marked_s is None or done < marked_done or size_bytes < marked_bytes:
        return mark
    if done == marked_done or marked_s < MARK_S:
        return before
    left_s = marked_s / (done - marked_done) * max(0, total - done)
    rate = (size_bytes - marked_bytes) / marked_s
    return {**mark, "bytesPerSecond": int(rate), "rate": f"{format_size(int(rate))}/s", "eta": format_duration(left_s)}
