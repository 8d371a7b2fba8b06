"""What a run has spent and come to outlives its status: the operator has written it into the bucket before."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from lead_operator.bucket.bucket_snapshot import BucketSnapshot
from lead_operator.bucket.bucket_view import BucketView
from lead_operator.controllers.reported_runs import ReportedRuns
from lead_operator.controllers.training_run import TrainingRunController
from lead_operator.decisions.observed import ObservedInstance, ObservedRun
from lead_operator.decisions.plan import Plan, RunRecord
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_operator.kube.api_errors import Conflict
from lead_operator.kube.client import KubeClient
from lead_operator.kube.kinds import KubernetesObject
from lead_operator.names import Condition
from lead_operator.resources.stored import read_stored
from lead_operator.resources.training_run import TrainingRun
from lead_protocol.object_keys import ControlKeys
from lead_protocol.run_records import RestartRecord, RunEnd, parse_restart_record, parse_run_end
from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import StoreUnavailable
from lead_testing.makers import (
    NOW,
    PROFILE,
    RUN_UID,
    SETTINGS,
    a_failed_pod,
    a_pod,
    a_ready_cache,
    a_run_body,
    a_training_run,
)
from lead_testing.statuses import find_condition

KEYS = ControlKeys("team-a", RUN_UID)
AWAY = "StoreUnavailable: no answer"
FAILED = (a_failed_pod(0), a_failed_pod(1))
TRIED = (ObservedInstance("train", 0, highest_attempt=1, recorded_attempt=1),)


def decide(run: TrainingRun, *, after_s: float = 0, previous: dict[str, Any] | None = None, **fields: Any) -> Plan:
    seen: dict[str, Any] = {"caches": (a_ready_cache(),), "service_exists": True, "instances": TRIED} | fields
    return decide_training_run(
        run, ObservedRun(now=NOW + timedelta(seconds=after_s), previous=previous or {}, **seen), SETTINGS
    )


def started(run: TrainingRun) -> dict[str, Any]:
    """Returns the status after both pods of attempt 1 were seen running."""
    first = decide(run, instances=(ObservedInstance("train", 0),)).status
    return decide(run, previous=first, pods=(a_pod(0), a_pod(1))).status


def failed(**seen: Any) -> tuple[TrainingRun, Plan]:
    """Returns a run that may not fail, and the plan for its first failure."""
    run = a_training_run(failurePolicy={"maxRestarts": 0}, cleanPodPolicy="All")
    return run, decide(run, previous=started(run), pods=FAILED, **seen)


def verdict_of(plan: Plan) -> RunEnd:
    (record,) = plan.records
    end = parse_run_end(record.data)
    assert (record.key, record.final) == (KEYS.ended, True) and end is not None
    return end


def storage(status: dict[str, Any]) -> str:
    return str((find_condition(status, Condition.STORAGE_AVAILABLE) or {})["status"])


def test_an_erased_run_that_has_failed_shows_its_verdict_again_and_starts_nothing() -> None:
    run, told = failed()
    end = verdict_of(told)
    again = decide(run, after_s=500, ended=end)
    assert not again.creates and not again.claim_attempt and not again.records
    kept = ("phase", "reason", "completionTime", "restarts")
    assert {key: again.status[key] for key in kept} == {key: told.status[key] for key in kept}
    messages = [(find_condition(plan.status, Condition.FAILED) or {})["message"] for plan in (told, again)]
    assert messages[0] == messages[1] and "maxRestarts" in messages[0]


def test_a_verdict_that_no_status_has_told_yet_is_the_one_that_is_told() -> None:
    run, told = failed()
    plan = decide(run, previous=started(run), pods=(a_pod(0), a_pod(1)), ended=verdict_of(told))
    assert (plan.status["phase"], plan.status["reason"], plan.creates) == ("Failed", "MaxRestarts", ())


def test_a_live_run_keeps_its_budgets_and_books_no_failure_twice() -> None:
    run = a_training_run()
    booked = decide(run, previous=started(run), pods=FAILED)
    (record,) = booked.records
    recorded = parse_restart_record(record.data)
    assert (record.key, record.final) == (KEYS.restarts(1), False) and recorded is not None
    again = decide(run, pods=FAILED, restart_record=recorded)
    assert again.status["restarts"] == booked.status["restarts"]
    entries = [plan.status["stages"][0] for plan in (booked, again)]
    kept = ("atStep", "errorsAtStep", "endsAtStep", "failedAttempt", "failedAt", "failedReason", "endedAttempt")
    assert [{key: entry["restartState"][key] for key in kept} for entry in entries[1:]] == [
        {key: entries[0]["restartState"][key] for key in kept}
    ]
    assert [entry["attempt"] for entry in entries] == [2, 2]
    assert not again.records


def test_nothing_is_booked_or_made_while_nobody_can_say_what_an_erased_run_has_spent() -> None:
    run = a_training_run(failurePolicy={"maxRestarts": 0})
    waits = decide(run, pods=FAILED, instances=(), store_error=AWAY)
    assert "restarts" not in waits.status and waits.status["reason"] == "StorageUnavailable"
    assert not waits.creates and not waits.claim_attempt
    half = decide(run, pods=(a_pod(0),), instances=(), store_error=AWAY)
    assert not half.creates
    recorded = RestartRecord(program=0, infrastructure=0, voluntary=2, instances=[])
    known = decide(run, previous=waits.status, pods=FAILED, restart_record=recorded)
    assert (known.status["phase"], known.status["restarts"]["voluntary"]) == ("Failed", 2)


def test_a_verdict_is_told_while_the_store_is_away_and_recorded_when_it_is_back() -> None:
    run, told = failed(store_error=AWAY)
    assert (told.status["phase"], told.records, storage(told.status)) == ("Failed", (), "False")
    still_away = decide(run, after_s=60, previous=told.status, store_error=AWAY)
    assert (still_away.status, still_away.records) == (told.status, ())
    back = decide(run, after_s=120, previous=told.status)
    assert verdict_of(back).ended_at == told.status["completionTime"]
    assert storage(back.status) == "True"
    rests = decide(run, after_s=180, previous=back.status)
    assert (rests.status, rests.records) == (back.status, ())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"phase": "Running", "reason": "x", "message": "", "ended_at": ""}',
        b'{"phase": "Failed", "reason": "", "message": "", "ended_at": ""}',
        b'{"phase": "Failed", "reason": "x", "message": "' + b"x" * 70_000 + b'", "ended_at": ""}',
    ],
)
def test_a_forged_verdict_is_none(data: bytes) -> None:
    assert parse_run_end(data) is None


def test_a_time_that_nobody_can_have_meant_is_not_told() -> None:
    end = RunEnd(phase="Failed", reason="BadConfig", message="no", ended_at="0001-01-01T00:00:00+14:00")
    assert decide(a_training_run(), ended=end).status["completionTime"] == "2026-01-01T12:00:00Z"


# --- in the bucket ---------------------------------------------------------------------------------------------------


class Server:
    """An API server that holds one run."""

    def __init__(self, version: str = "7") -> None:
        self.version = version
        self.clock = self

    def now(self) -> Any:
        """The server's time."""
        return NOW

    async def get(self, *place: object) -> KubernetesObject:
        """Returns the run as it is now."""
        return body(self.version)


def body(version: str = "7") -> KubernetesObject:
    found = a_run_body()
    found["metadata"]["resourceVersion"] = version
    return found


async def record(view: BucketView, held: KubernetesObject, plan: Plan, *, server_has: str = "7") -> Plan:
    memories: Any = None
    client, runs = cast(KubeClient, Server(server_has)), ReportedRuns(view)
    controller = TrainingRunController(client, memories, view, memories, memories, runs, memories, memories, SETTINGS)
    return await controller.record(controller.parse(held), read_stored(held, "TrainingRun"), plan)


async def look_into(view: BucketView, **asked: Any) -> BucketSnapshot:
    return await view.read_run(PROFILE, "team-a", RUN_UID, (("train", 0),), live=frozenset(), max_age_s=3600.0, **asked)


async def test_what_is_recorded_is_read_back_though_the_run_looks_new(tmp_path: Path) -> None:
    view = BucketView(SETTINGS, lambda profile: FolderStore(tmp_path))
    await view.read_run(PROFILE, "team-a", "another", (), live=frozenset(), max_age_s=0)  # the store answers
    assert (await look_into(view, untouched=True, erased=True)).ended is None
    _, told = failed()
    for plan in (decide(a_training_run(), previous=started(a_training_run()), pods=FAILED), told):
        assert await record(view, body(), plan) is plan
    found = await look_into(view, untouched=True, erased=True)
    assert found.ended == verdict_of(told)
    assert found.restart_record is not None and found.restart_record.program == 1
    assert (await look_into(view)).ended == verdict_of(told)


async def test_the_newest_book_counts_and_one_that_is_not_sound_is_passed_over(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    view = BucketView(SETTINGS, lambda profile: store)
    for total in (2, 10, 9):
        recorded = RestartRecord(program=total, infrastructure=0, voluntary=0, instances=[])
        store.put(KEYS.restarts(total), recorded.model_dump_json().encode())
    store.put(KEYS.restarts(11), b"{}")
    found = (await look_into(view, erased=True)).restart_record
    assert found is not None and found.program == 10


async def test_a_verdict_that_rests_on_an_old_copy_is_not_recorded(tmp_path: Path) -> None:
    view = BucketView(SETTINGS, lambda profile: FolderStore(tmp_path))
    with pytest.raises(Conflict, match="has changed"):
        await record(view, body("7"), failed()[1], server_has="8")
    assert (await look_into(view)).ended is None


async def test_another_verdict_that_stands_is_seen_at_the_next_look(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    view = BucketView(SETTINGS, lambda profile: store)
    assert (await look_into(view)).ended is None
    first = RunEnd(phase="Failed", reason="BadConfig", message="no", ended_at="2026-01-01T11:00:00Z")
    store.create(KEYS.ended, first.model_dump_json().encode())
    with pytest.raises(Conflict, match="another verdict stands"):
        await record(view, body(), failed()[1])
    assert (await look_into(view)).ended == first


async def test_a_store_that_takes_nothing_holds_no_verdict_up_and_status_owes_it(tmp_path: Path) -> None:
    class Away(FolderStore):
        def create(self, key: str, data: bytes) -> bool:
            raise StoreUnavailable("no answer")

    view = BucketView(SETTINGS, lambda profile: Away(tmp_path))
    run, told = failed()
    plan = await record(view, body(), told)
    assert plan.status["phase"] == "Failed"
    assert storage(plan.status) == "False"
    back = decide(run, after_s=60, previous=plan.status)
    held = body()
    held["status"] = plan.status
    assert (await record(view, held, back)).status == plan.status
    booked = replace(told, records=(RunRecord(KEYS.restarts(1), b"{}"),))
    assert await record(view, body(), booked) is booked
