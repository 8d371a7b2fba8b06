"""From a session cache's counters to the CACHE column: figures of the newest report, kept while there is none."""

import json
from typing import Any

import pytest

from lead_operator.decisions.training_run.session_cache_figures import cache_figures
from lead_protocol.progress_record import MAX_DEGRADED_RANKS, MAX_RECORD_BYTES, ProgressRecord, parse_progress, to_bytes
from lead_testing.statuses import run_status

PLAIN: dict[str, Any] = {
    "attempt": 1, "seq": 4, "phase": "Training", "epoch": 0, "epochs": 4, "step": 3, "steps": 48,
}  # fmt: skip
STAGES = {"load": 12.3456, "copy": 1.5, "outage": 0.0, "wait": 0.25, "step": 30.0}
READ: dict[str, Any] = {
    **PLAIN, "cache_hits": 930, "cache_misses": 70, "cache_fetched_bytes": 3 * 2**29, "cache_fetch_s": 61.9,
    "cache_corrupt": 2, "loading_s": STAGES,
}  # fmt: skip


def test_the_column_is_the_share_of_reads_and_the_rest_lies_beside_it() -> None:
    record = parse_progress(to_bytes(ProgressRecord(**READ)))
    assert cache_figures(record, run_status({"cacheHits": "1%", "cache": {"hits": "1"}})) == (
        "93%",
        {
            "hits": "930", "misses": "70", "fetched": "1.5Gi", "damaged": "2", "fetchSeconds": "61.9",
            "copySeconds": "1.5", "loadSeconds": "12.35", "outageSeconds": "0", "stepSeconds": "30",
            "waitSeconds": "0.25",
        },
    )  # fmt: skip


def test_what_was_asked_of_the_store_twice_is_told_where_there_is_any() -> None:
    assert "askedTwice" not in cache_figures(ProgressRecord(**READ), run_status({}))[1]
    told = cache_figures(ProgressRecord(**READ, cache_second_bytes=2**20), run_status({}))[1]
    assert told["askedTwice"] == "1.0Mi"


@pytest.mark.parametrize("hits, misses, text", [(0, 1, "0%"), (999, 1, "99%"), (1000, 0, "100%")])
def test_only_a_cache_that_answered_everything_shows_100(hits: int, misses: int, text: str) -> None:
    record = ProgressRecord(**PLAIN, cache_hits=hits, cache_misses=misses)
    assert cache_figures(record, run_status({}))[0] == text


@pytest.mark.parametrize("record", [None, ProgressRecord(**PLAIN)])
def test_figures_stay_until_something_was_read_again(record: ProgressRecord | None) -> None:
    before = run_status({"cacheHits": "93%", "cache": {"hits": "930"}, "phase": "Running"})
    assert cache_figures(record, before) == ("93%", {"hits": "930"})
    assert cache_figures(record, run_status({})) == ("", {})


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
