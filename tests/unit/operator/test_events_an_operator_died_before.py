"""A process that meets a resource sends the events of its course again: those of its last hour, in the same words."""

from datetime import timedelta
from typing import Any

from lead_operator.decisions.events import run_events
from lead_operator.decisions.missed_events import KEPT, missed_cache_events, missed_run_events
from lead_testing.makers import NOW

THEN = "2026-01-01T11:59:00Z"
STAGES: list[dict[str, Any]] = [
    {"name": "train", "seed": seed, "attempt": 1, "phase": "Succeeded", "checkpoint": f"s3://lead/{seed}",
     "completionTime": THEN, "book": {"attemptTime": THEN}} for seed in (0, 1)
]  # fmt: skip
END = {"type": "Succeeded", "status": "True", "reason": "AllStagesDone", "message": "done", "lastTransitionTime": THEN}
STATUS = {"phase": "Succeeded", "stages": STAGES, "conditions": [END]}


def test_they_are_those_of_the_passes_that_wrote_the_status() -> None:
    begun = [{**entry, "phase": "Running"} for entry in STAGES]
    said = {*run_events({}, {"phase": "Starting", "stages": begun}), *run_events({"stages": begun}, STATUS)}
    missed = {note for note, _ in missed_run_events(STATUS, NOW)}
    assert {note.reason for note in missed} == {"PodsCreated", "StageCompleted", "Succeeded"}
    assert missed <= said


def test_what_is_older_than_events_are_kept_is_no_news() -> None:
    assert list(missed_run_events(STATUS, NOW + KEPT)) == []
    ready = {"phase": "Ready", "conditions": [{**END, "type": "Ready"}]}
    assert [(note.reason, NOW - at) for note, at in missed_cache_events(ready, NOW)] == [
        ("Ready", timedelta(minutes=1))
    ]
    assert list(missed_cache_events(ready, NOW + KEPT)) == []


def test_a_status_that_tells_no_times_announces_nothing() -> None:
    assert list(missed_run_events({"phase": "Running", "stages": [{"attempt": 1, "name": "a", "seed": 0}]}, NOW)) == []
    assert list(missed_run_events({}, NOW)) == [] and list(missed_cache_events({}, NOW)) == []
