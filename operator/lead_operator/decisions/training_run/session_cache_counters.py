"""status.sessionCache: what a run's session cache answered, and what loading spent its time with. Pure."""

from lead_operator.resources.training_run_status import SessionCacheStatus
from lead_protocol.progress_record import ProgressRecord


def session_cache_counters(
    record: ProgressRecord | None, previous: SessionCacheStatus | None
) -> SessionCacheStatus | None:
    """Returns the counters of the newest report; the `previous` ones where nothing was read yet."""
    if record is None or not record.cache_hits + record.cache_misses:
        return previous
    seconds = {"fetch": record.cache_fetch_s, **record.loading_s}
    return SessionCacheStatus(
        hits=record.cache_hits,
        misses=record.cache_misses,
        fetched_bytes=record.cache_fetched_bytes,
        fetched_twice_bytes=record.cache_second_bytes,
        corrupt=record.cache_corrupt,
        loading_milliseconds={stage: round(1000 * spent_s) for stage, spent_s in sorted(seconds.items())},
    )
