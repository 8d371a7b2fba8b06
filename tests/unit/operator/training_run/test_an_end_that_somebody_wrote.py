"""Somebody writes an end into the status of a run: the operator's records decide, and what a process remembers."""

from pathlib import Path
from typing import Any

import pytest

from lead_operator.bucket.bucket_view import BucketView
from lead_operator.controllers.reported_runs import EndCheck, ReportedRuns
from lead_operator.decisions.observed import ObservedInstance, ObservedPod, ObservedRun
from lead_operator.decisions.plan import Plan
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_protocol.object_keys import ControlKeys
from lead_protocol.run_records import RunEnd
from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import StoreUnavailable
from lead_testing.makers import NOW, PROFILE, RUN_UID, SETTINGS, a_failed_pod, a_pod, a_ready_cache, a_training_run
from lead_testing.parsed_statuses import run_status

RUN = a_training_run(ttlSecondsAfterFinished=0)
KEYS = ControlKeys("team-a", RUN_UID)
GROUP = (a_pod(0), a_pod(1))
END = RunEnd(phase="Succeeded", reason="AllStagesDone", message="trained", ended_at="2026-01-01T11:00:00Z")


def decide(status: dict[str, Any], *pods: ObservedPod, **seen: Any) -> Plan:
    seen = {"instances": (ObservedInstance("train", 0, highest_attempt=1, recorded_attempt=1),)} | seen
    observed = ObservedRun(
        now=NOW, pods=pods, service_exists=True, caches=(a_ready_cache(),), previous=status, **seen
    )  # fmt: skip
    return decide_training_run(RUN, observed, SETTINGS)


def running() -> dict[str, Any]:
    return decide(decide({}, instances=(ObservedInstance("train", 0),)).status, *GROUP).status


def forged(status: dict[str, Any], *ends: str) -> dict[str, Any]:
    said = [
        {"type": end, "status": "True", "reason": "Forged", "message": "", "observedGeneration": 1,
         "lastTransitionTime": "2025-01-01T00:00:00Z"} for end in ends
    ]  # fmt: skip
    stages = [entry | {"phase": ends[0]} for entry in status.get("stages", [])]
    over = {"phase": ends[0], "reason": "Forged", "stages": stages, "completionTime": "2025-01-01T00:00:00Z"}
    others = [each for each in status.get("conditions", []) if each["type"] not in ends]
    return status | over | {"conditions": [*others, *said]}


def kinds(plan: Plan) -> set[str]:
    return {c["type"] for c in plan.status["conditions"] if c["status"] == "True"}


@pytest.mark.parametrize("ends", [("Succeeded",), ("Failed",), ("Failed", "Succeeded")])
def test_an_end_that_is_disproved_ends_nothing_and_the_status_is_rebuilt(ends: tuple[str, ...]) -> None:
    plan = decide(forged(running(), *ends), *GROUP, end_disproved=True)
    assert not plan.deletes and not plan.delete_self and not plan.records
    assert not kinds(plan) & {"Succeeded", "Failed"} and "completionTime" not in plan.status
    assert plan.status["stages"][0]["phase"] == "Starting" and plan.status["stages"][0]["attempt"] == 1
    assert "StatusRestored" in [note.reason for note in plan.events]
    again = decide(plan.status, *GROUP)
    assert again.status == plan.status and not again.events


def test_an_end_from_an_outage_that_nobody_recorded_accuses_nobody() -> None:
    away = decide(running(), *GROUP, store_error="StoreUnavailable: no answer").status
    plan = decide(forged(away, "Succeeded"), *GROUP, end_disproved=True)
    (event,) = [note for note in plan.events if note.type == "Warning"]
    assert event.reason == "EndNotRecorded" and "operator was restarted" in event.message
    assert not kinds(plan) & {"Succeeded", "Failed"}


def test_a_run_that_goes_on_after_it_restarts_as_before() -> None:
    plan = decide(forged(running(), "Failed"), a_failed_pod(0), a_failed_pod(1), end_disproved=True)
    assert (plan.status["phase"], plan.status["restarts"]["program"], plan.claim_attempt) == ("Recovering", 1, True)


def test_while_nobody_can_say_nothing_is_started_or_deleted() -> None:
    status = forged(running(), "Succeeded")
    plan = decide(status, *GROUP, store_error="StoreUnavailable: no answer")
    assert (plan.status, plan.deletes, plan.creates, plan.delete_self) == (status, (), (), False)


@pytest.mark.parametrize("change", [{"phase": "Running"}, {"phase": "Failed"}])
def test_the_recorded_end_comes_back_whatever_a_status_says(change: dict[str, Any]) -> None:
    ended = decide(running(), *GROUP, ended=END).status
    plan = decide(ended | change, ended=END)
    assert plan.status["phase"] == "Succeeded" and not plan.creates
    swapped = decide(forged(running(), "Failed"), ended=END)
    assert swapped.status["phase"] == "Succeeded" and kinds(swapped) >= {"Succeeded"} and "Failed" not in kinds(swapped)


# --- what a process knows --------------------------------------------------------------------------------------------


class Away(FolderStore):
    def list(self, prefix: str) -> Any:
        raise StoreUnavailable("no answer")


def ends(folder: Path, store: type[FolderStore] = FolderStore) -> ReportedRuns:
    return ReportedRuns(BucketView(SETTINGS, lambda profile: store(folder)))


async def check(ends: ReportedRuns, status: dict[str, Any], *pods: ObservedPod) -> EndCheck:
    return await ends.check_end(RUN, PROFILE, ObservedRun(now=NOW, pods=pods, previous=status))


async def test_a_recorded_end_is_read_once(tmp_path: Path) -> None:
    FolderStore(tmp_path).create(KEYS.ended, END.model_dump_json().encode())
    known = ends(tmp_path)
    assert await check(known, forged(running(), "Succeeded")) == EndCheck(ended=END)
    known.bucket = ends(tmp_path, Away).bucket
    assert (await check(known, forged(running(), "Succeeded"))).ended == END
    assert "no answer" in (await check(known, forged(running(), "Failed"))).error, "another end is another question"


@pytest.mark.parametrize("evidence", ["records", "a live pod", "no attempt", "seen before", "none"])
async def test_an_end_without_a_record_needs_no_more_than_one_trace_to_be_disproved(
    tmp_path: Path, evidence: str
) -> None:
    """A run whose records somebody removed together with its data is not started again."""
    status, known = forged(running(), "Succeeded"), ends(tmp_path)
    if evidence == "records":
        FolderStore(tmp_path).create(KEYS.attempt("train", 0, 1), b"{}")
    if evidence == "no attempt":
        status["stages"] = []
    if evidence == "seen before":
        known.note(RUN, run_status({}), run_status(running()))
    found = await check(known, status, *(GROUP if evidence == "a live pod" else ()))
    assert found.disproved is (evidence != "none")


async def test_a_stage_that_somebody_wrote_done_before_the_first_listing_is_trained(tmp_path: Path) -> None:
    """A run that is new has nothing in its bucket, which is known without a look and no reason to believe a status."""
    view = BucketView(SETTINGS, lambda profile: FolderStore(tmp_path))
    await view.read_recorded_end(PROFILE, "team-a", "another")  # the store answers
    at = (PROFILE, "team-a", RUN_UID, (("train", 0),))
    await view.read_run(*at, live=frozenset(), max_age_s=60, untouched=True)
    found = await view.read_run(*at, live=frozenset(), max_age_s=60)
    plan = decide(forged(running(), "Succeeded"), *GROUP, instances=found.instances, end_disproved=True)
    assert plan.status["stages"][0]["phase"] == "Starting" and not kinds(plan) & {"Succeeded", "Failed"}
    assert not [record for record in plan.records if record.final]


async def test_an_end_that_this_process_has_decided_waits_for_the_store(tmp_path: Path) -> None:
    before, known = running(), ends(tmp_path)
    after = forged(before, "Failed")
    known.note(RUN, run_status({}), run_status(before))
    known.note(RUN, run_status(before), run_status(after))
    assert await check(known, after) == EndCheck()
    known.note(RUN, run_status(before), run_status(before))
    assert await check(known, after) == EndCheck(), "a look at an older copy, whose newer one holds the end"
    other = ends(tmp_path)
    other.note(RUN, run_status({}), run_status(before))
    assert (await check(other, after)).disproved, "another process decides it once more"
    known.memories.forget(RUN_UID)
    assert not (await check(known, after)).disproved, "of a run that is gone nothing is known"
