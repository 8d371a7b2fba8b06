"""A process that meets a resource sends the events of its course again: those of its last hour, in the same words."""

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from lead_operator.decisions.events import run_events
from lead_operator.decisions.formatting import format_time
from lead_operator.decisions.missed_events import KEPT, missed_cache_events, missed_run_events
from lead_operator.decisions.observed import ObservedCheckpoint, ObservedInstance, ObservedPod, ObservedRun
from lead_operator.decisions.plan import EventNote
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_operator.kube.event_recorder import build_event
from lead_operator.resources.training_run import TrainingRun
from lead_protocol.progress_record import ProgressRecord
from lead_testing.makers import (
    NOW,
    RUN_UID,
    SETTINGS,
    a_failed_pod,
    a_pod,
    a_ready_cache,
    a_training_run,
)
from lead_testing.parsed_statuses import cache_status, run_status

THEN = "2026-01-01T11:59:00Z"
STAGES: list[dict[str, Any]] = [
    {"name": "train", "seed": seed, "attempt": 1, "phase": "Succeeded", "checkpoint": {"uri": f"s3://lead/{seed}"},
     "completionTime": THEN, "restartState": {"attemptTime": THEN}} for seed in (0, 1)
]  # fmt: skip
END = {"type": "Succeeded", "status": "True", "reason": "AllStagesDone", "message": "done", "lastTransitionTime": THEN}
STATUS = {"phase": "Succeeded", "stages": STAGES, "conditions": [END]}


def test_they_are_those_of_the_passes_that_wrote_the_status() -> None:
    begun = [{**entry, "phase": "Running"} for entry in STAGES]
    empty, starting, trained, ended = map(
        run_status, ({}, {"phase": "Starting", "stages": begun}, {"stages": begun}, STATUS)
    )
    said = {*run_events(empty, starting), *run_events(trained, ended)}
    missed = {note for note, _ in missed_run_events(ended, NOW)}
    assert {note.reason for note in missed} == {"PodsCreated", "CheckpointSaved", "StageCompleted", "Succeeded"}
    assert missed <= said


def test_what_is_older_than_events_are_kept_is_no_news() -> None:
    assert list(missed_run_events(run_status(STATUS), NOW + KEPT)) == []
    ready = {"phase": "Ready", "conditions": [{**END, "type": "Ready"}]}
    assert [(note.reason, NOW - at) for note, at in missed_cache_events(cache_status(ready), NOW)] == [
        ("Ready", timedelta(minutes=1))
    ]
    assert list(missed_cache_events(cache_status(ready), NOW + KEPT)) == []


def test_a_status_that_tells_no_times_announces_nothing() -> None:
    assert (
        list(
            missed_run_events(run_status({"phase": "Running", "stages": [{"attempt": 1, "name": "a", "seed": 0}]}), NOW)
        )
        == []
    )
    assert list(missed_run_events(run_status({}), NOW)) == [] and list(missed_cache_events(cache_status({}), NOW)) == []


# --- killed between a status and its events, at every pass of a life --------------------------------------------------


@dataclass
class Life:
    """A run of one pod and two stages, whose operator is killed after each status write, before the events."""

    run: TrainingRun = field(default_factory=lambda: a_training_run(nodes=1, stages=STAGES_OF_LIFE))
    status: dict[str, Any] = field(default_factory=dict)
    at_s: float = 0.0
    lost: dict[str, list[EventNote]] = field(default_factory=dict)  # by reason, of all passes

    def observe(self, *buckets: ObservedInstance, pods: tuple[ObservedPod, ...] = ()) -> None:
        self.at_s += 5.0
        now = NOW + timedelta(seconds=self.at_s)
        observed = ObservedRun(
            now=now, pods=pods, service_exists=True, caches=(a_ready_cache(),), instances=buckets, previous=self.status
        )
        plan = decide_training_run(self.run, observed, SETTINGS)
        self.status = plan.status
        for note in plan.events:
            self.lost.setdefault(note.reason, []).append(note)
        missed = [note for note, _ in missed_run_events(run_status(self.status), now + timedelta(seconds=30))]
        absent = [note for note in plan.events if note.reason in COURSE and note not in missed]
        assert not absent, f"{self.status['phase']}: {absent} of {missed}"
        for note, happened in missed_run_events(run_status(self.status), now):
            assert NOW <= happened <= now, (note, happened)


COURSE = {
    "PodsCreated", "Started", "CheckpointSaved", "OOMKilled", "Restarting", "Suspended", "Resumed", "StageCompleted",
    "Succeeded", "Failed", "BadConfig",
}  # fmt: skip
STAGES_OF_LIFE = [{"name": "train", "epochs": 2}, {"name": "tune", "epochs": 1}]


def seen(stage: str, attempt: int, epoch: int = 0, step: int = 0) -> ObservedInstance:
    record = ProgressRecord(
        attempt=max(1, attempt), seq=step, phase="Training", epoch=epoch, epochs=2, step=step + 1, steps=24
    )
    prefix = f"runs/team-a/{RUN_UID}/{stage}-s0/checkpoints/{step:012d}/0001-abc/"
    saved_at = format_time(NOW + timedelta(seconds=step))  # two checkpoints that one pass finds are one event
    checkpoint = ObservedCheckpoint("key", prefix, step, epoch, 1, 10, saved_at) if epoch else None
    return ObservedInstance(
        stage, 0, progress=record if attempt else None, checkpoint=checkpoint, highest_attempt=attempt,
        recorded_attempt=attempt,
    )  # fmt: skip


def of(stage: str, attempt: int, **fields: Any) -> tuple[ObservedPod, ...]:
    make = a_failed_pod if fields.get("phase") == "Failed" else a_pod
    return (make(0, stage=stage, attempt=attempt, **fields),)


def a_life(*, ends_well: bool) -> Life:
    life, nothing = Life(), seen("tune", 0)
    life.observe(seen("train", 0), nothing)
    life.observe(seen("train", 0), nothing, pods=of("train", 1, phase="Pending", started_at=None))
    life.observe(seen("train", 1), nothing, pods=of("train", 1))
    life.observe(seen("train", 1, 1, 12), nothing, pods=of("train", 1))
    life.observe(
        seen("train", 1, 1, 12), nothing, pods=of("train", 1, phase="Failed", exit_code=137, reason="OOMKilled")
    )
    life.observe(seen("train", 1, 1, 12), nothing)
    life.observe(seen("train", 2, 1, 12), nothing, pods=of("train", 2))
    life.run = replace(life.run, suspend=True)
    life.observe(seen("train", 2, 1, 12), nothing, pods=of("train", 2))
    life.observe(seen("train", 2, 1, 12), nothing)
    life.run = replace(life.run, suspend=False)
    life.observe(seen("train", 2, 1, 12), nothing)
    life.observe(seen("train", 3, 1, 12), nothing, pods=of("train", 3))
    if not ends_well:
        life.observe(
            seen("train", 3, 1, 12), nothing, pods=of("train", 3, phase="Failed", exit_code=64, message="no key")
        )
        return life
    done = seen("train", 3, 2, 24)
    life.observe(done, nothing, pods=of("train", 3, phase="Succeeded"))
    life.observe(done, nothing, pods=of("train", 3, phase="Succeeded"))
    life.observe(done, seen("tune", 1), pods=of("tune", 1))
    life.observe(done, seen("tune", 1, 1, 12), pods=of("tune", 1, phase="Succeeded"))
    life.observe(done, seen("tune", 1, 1, 12), pods=of("tune", 1, phase="Succeeded"))
    return life


@pytest.mark.parametrize("ends_well", [True, False])
def test_no_event_of_a_course_is_lost_with_a_process_that_dies_before_it(ends_well: bool) -> None:
    """Each pass of a life: what it would have sent is what the next process sends, in the same words."""
    life = a_life(ends_well=ends_well)
    ends = {"Succeeded", "StageCompleted"} if ends_well else {"Failed", "BadConfig"}
    assert set(life.lost) & COURSE == COURSE - {"Succeeded", "StageCompleted", "Failed", "BadConfig"} | ends
    whose = a_training_run().identity
    sent = [
        build_event(whose, note, at)["metadata"]["name"] for note, at in missed_run_events(run_status(life.status), NOW)
    ]
    assert len(sent) == len(set(sent))


def test_a_run_that_never_was_suspended_was_not_resumed() -> None:
    life = Life()
    life.observe(seen("train", 0), seen("tune", 0))
    for _ in range(3):
        life.observe(seen("train", 1), seen("tune", 0), pods=of("train", 1))
    assert "Resumed" not in {note.reason for note, _ in missed_run_events(run_status(life.status), NOW)}


def test_the_failure_of_a_build_is_told_by_the_next_process() -> None:
    failure = {"time": THEN, "reason": "OOMKilled", "message": "pod x needed more memory"}
    (missed,) = missed_cache_events(cache_status({"phase": "Building", "lastFailure": failure}), NOW)
    assert missed[0] == EventNote("Warning", "OOMKilled", "pod x needed more memory")
