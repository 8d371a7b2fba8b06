"""What a run's status tells of its session cache and of loading: `status.cacheHits` and `status.cache`. Pure."""

from lead_operator.decisions.formatting import format_number, format_size
from lead_operator.resources.training_run_status import TrainingRunStatus
from lead_protocol.progress_record import ProgressRecord


def cache_figures(record: ProgressRecord | None, previous: TrainingRunStatus) -> tuple[str, dict[str, str]]:
    """Returns both fields; those of the `previous` status where nothing was read yet."""
    reads = record.cache_hits + record.cache_misses if record is not None else 0
    if record is None or not reads:
        return previous.cache_hits, previous.cache
    seconds = {"fetch": record.cache_fetch_s, **record.loading_s}
    twice = {"askedTwice": format_size(record.cache_second_bytes)} if record.cache_second_bytes else {}
    cache = {
        "hits": str(record.cache_hits),
        "misses": str(record.cache_misses),
        "fetched": format_size(record.cache_fetched_bytes),
        **twice,
        "damaged": str(record.cache_corrupt),
        **{f"{stage}Seconds": format_number(spent) for stage, spent in sorted(seconds.items())},
    }
    return f"{100 * record.cache_hits // reads}%", cache
