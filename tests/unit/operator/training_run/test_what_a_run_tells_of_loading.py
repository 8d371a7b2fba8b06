"""From a session cache's counters to the CACHE column: those of the newest report, kept while there is none."""

import json
from typing import Any

import pytest

from lead_operator.decisions.training_run.display import run_display
from lead_operator.decisions.training_run.session_cache_counters import session_cache_counters
from lead_operator.resources.status_format import status_json
from lead_operator.resources.training_run_status import InstanceStatus, PodsStatus, SessionCacheStatus
from lead_protocol.progress_record import MAX_DEGRADED_RANKS, MAX_RECORD_BYTES, ProgressRecord, parse_progress, to_bytes

PLAIN: dict[str, Any] = {
    "attempt": 1, "seq": 4, "phase": "Training", "epoch": 0, "epochs": 4, "step": 3, "steps": 48,
}  # fmt: skip
STAGES = {"load": 12.3456, "copy": 1.5, "outage": 0.0, "wait": 0.25, "step": 30.0}
READ: dict[str, Any] = {
    **PLAIN, "cache_hits": 930, "cache_misses": 70, "cache_fetched_bytes": 3 * 2**29, "cache_fetch_s": 61.9,
    "cache_corrupt": 2, "loading_s": STAGES,
}  # fmt: skip


def text(counters: SessionCacheStatus | None) -> str:
    entry = InstanceStatus(name="train", seed=0)
    return run_display(entry, "train", PodsStatus(), (), counters).cache_hits


def test_the_column_is_the_share_of_reads_and_the_counters_are_numbers() -> None:
    record = parse_progress(to_bytes(ProgressRecord(**READ)))
    found = session_cache_counters(record, SessionCacheStatus(hits=1))
    assert found is not None and text(found) == "93%"
    assert status_json(found) == {
        "hits": 930, "misses": 70, "fetchedBytes": 3 * 2**29, "fetchedTwiceBytes": 0, "corrupt": 2,
        "loadingMilliseconds": {"copy": 1500, "fetch": 61900, "load": 12346, "outage": 0, "step": 30000, "wait": 250},
    }  # fmt: skip


@pytest.mark.parametrize("hits, misses, shown", [(0, 1, "0%"), (999, 1, "99%"), (1000, 0, "100%")])
def test_only_a_cache_that_answered_everything_shows_100(hits: int, misses: int, shown: str) -> None:
    record = ProgressRecord(**PLAIN, cache_hits=hits, cache_misses=misses)
    assert text(session_cache_counters(record, None)) == shown


@pytest.mark.parametrize("record", [None, ProgressRecord(**PLAIN)])
def test_counters_stay_until_something_was_read_again(record: ProgressRecord | None) -> None:
    before = SessionCacheStatus(hits=930, misses=70)
    assert session_cache_counters(record, before) == before and text(before) == "93%"
    assert session_cache_counters(record, None) is None and text(None) == ""


@pytest.mark.parametrize(
    "hostile",
    [
        {"cache_fetched_bytes": -1},
        {"cache_fetched_bytes": 10**16},
        {"cache_fetched_bytes": "7"},
        {"cache_fetch_s": -0.1},
        {"cache_fetch_s": 1e13},
        {"cache_corrupt": True},
        {"cache_second_bytes": -1},
        {"cache_degraded_ranks": [-1]},
        {"cache_degraded_ranks": [0.5]},
        {"cache_degraded_ranks": list(range(MAX_DEGRADED_RANKS + 1))},
        {"loading_s": {"load": -1.0}},
        {"loading_s": {"load": 1e13}},
        {"loading_s": {"load": "soon"}},
        {"loading_s": {"a b\n": 1.0}},
        {"loading_s": {"x" * 65: 1.0}},
        {"loading_s": {f"stage{n}": 1.0 for n in range(9)}},
        {"step_counts": [0] * 13},
        {"step_counts": [-1]},
        {"gpu_busy": 1.5},
        {"checkpoints_s": -1.0},
    ],
)
def test_a_report_with_impossible_figures_is_not_believed(hostile: dict[str, Any]) -> None:
    assert parse_progress(json.dumps(READ).encode()) is not None
    assert parse_progress(json.dumps(READ | hostile).encode()) is None


def test_seconds_that_are_no_numbers_are_not_believed() -> None:
    for word in ("NaN", "Infinity", "-Infinity"):
        text = json.dumps(READ).replace("61.9", word)
        assert parse_progress(text.encode()) is None


def test_the_largest_figures_fit_into_a_termination_message() -> None:
    most = {**READ, "cache_fetched_bytes": 10**15, "cache_fetch_s": 1e12, "message": "x" * 512,
            "cache_degraded": True, "cache_degraded_ranks": list(range(9000, 9000 + MAX_DEGRADED_RANKS)),
            "loading_s": {str(n) * 64: 123456789012.125 for n in range(8)},
            "metrics": {f"{n:064d}": 1 / 3 for n in range(16)}}  # fmt: skip
    data = to_bytes(ProgressRecord(**most))
    assert len(data) <= MAX_RECORD_BYTES and parse_progress(data) is not None
