"""What is left to do for a run that has ended: it keeps its status, and nothing of it is started again. Pure.

A status is output: it ends no run. The operator's record of the end does, or its own memory while the store is away.
"""

from dataclasses import replace

from lead_operator.decisions.conditions import closed_loop_condition_events
from lead_operator.decisions.events import one_a_reason
from lead_operator.decisions.formatting import seconds_since
from lead_operator.decisions.observed import ObservedRun
from lead_operator.decisions.plan import SOON_S, EventNote, Plan, RunRecord, earliest, once_each
from lead_operator.decisions.training_run.closed_loop import decide_closed_loop
from lead_operator.decisions.training_run.closed_loop_report import closed_loop_events, report_closed_loop
from lead_operator.decisions.training_run.pod_group import clean_pods
from lead_operator.decisions.training_run.records import owed_verdict, store_is_back, with_the_store
from lead_operator.decisions.training_run.restarts import read_restarts
from lead_operator.names import Condition
from lead_operator.resources.status_format import status_json
from lead_operator.resources.training_run import TrainingRun
from lead_operator.resources.training_run_status import TrainingRunStatus
from lead_operator.settings import Settings

_ENDS = (Condition.SUCCEEDED, Condition.FAILED)


def reported_end(status: TrainingRunStatus) -> tuple[str, str] | None:
    """Returns phase and reason of the end that a status reports; None where it reports none.

    The phase is empty where conditions and phase contradict each other.
    """
    held = [
        condition for kind in _ENDS if (condition := status.condition(kind)) is not None and condition.status == "True"
    ]
    if not held:
        return None
    agrees = len(held) == 1 and status.phase in ("", held[0].type)
    return (held[0].type if agrees else "", held[0].reason)


def is_over(observed: ObservedRun) -> bool:
    """Returns whether the end that status reports is the one that the operator has decided.

    Where its records cannot be read, status is left as it is: nothing is started, and nothing is deleted.
    """
    reported = reported_end(observed.status)
    if reported is None or observed.end_disproved:
        return False
    return observed.ended is None or reported == (observed.ended.phase, observed.ended.reason)


def restored_events(observed: ObservedRun) -> tuple[EventNote, ...]:
    """Returns the event that a status was rebuilt which reported an end that is not in the operator's records.

    An end that was decided while the store was away is in no record yet, and who finds it cannot know who wrote it.
    """
    reported = reported_end(observed.status)
    if reported is None or is_over(observed):
        return _restored_counters(observed)
    phase, reason = reported
    if observed.ended is None and store_is_back(observed):
        text = (
            f"the status reports {phase or 'contradicting conditions'} ({reason}) from the time when the object store "
            "was away, and the operator's records hold no end: the operator was restarted before it could record this "
            "one, or somebody else wrote it; the status is rebuilt from records and pods, and the run goes on"
        )
        return (EventNote("Warning", "EndNotRecorded", text),)
    recorded = f"{observed.ended.phase} ({observed.ended.reason})" if observed.ended is not None else "no end"
    text = (
        f"somebody wrote {phase or 'contradicting conditions'} ({reason}) into the status, but the operator's records "
        f"hold {recorded}: the status is rebuilt from them; see who may change trainingruns/status"
    )
    return (EventNote("Warning", "StatusRestored", text),)


def _restored_counters(observed: ObservedRun) -> tuple[EventNote, ...]:
    if not observed.counters_disproved or is_over(observed):
        return ()
    text = (
        f"the status reports {observed.counters_disproved}: it is rebuilt from records and pods; see who may change "
        "trainingruns/status"
    )
    return (EventNote("Warning", "StatusRestored", text),)


def after_end(run: TrainingRun, observed: ObservedRun, settings: Settings) -> Plan:
    """Returns the plan for a run that has ended: what is left of its pods goes, and after its time the run itself.

    What drives in the closed loop goes on to its end, and the run stays for so long.
    """
    status = replace(observed.status, observed_generation=run.identity.generation)
    if observed.store_error and observed.ended is None:
        return Plan(status=status_json(status))
    if status.restarts is None and not observed.accounts_unknown:
        attempts = [entry.attempt for entry in status.stages]
        status = replace(status, restarts=read_restarts(None, observed.restart_record, attempts).to_status())
    records: tuple[RunRecord, ...] = ()
    if store_is_back(observed):
        records, status = owed_verdict(run, observed), with_the_store(status, observed.now)
    loop = decide_closed_loop(run, observed, settings, status.stages, status.phase)
    status = report_closed_loop(status, loop, observed.status, observed.now)
    cleaned = clean_pods(run, observed)
    plan = Plan(
        status=status_json(status),
        records=records,
        claim_attempt=loop.claim,
        deletes=once_each(*cleaned, *loop.deletes),
        tries=loop.tries,
        events=one_a_reason(
            [
                *closed_loop_events(observed.status.closed_loop, status.closed_loop),
                *closed_loop_condition_events(observed.status, status),
            ]
        ),
        requeue_after_s=earliest(SOON_S * 10 if cleaned else None, loop.wake_s),
        urgent=loop.finding is not None and status.closed_loop != observed.status.closed_loop,
    )
    ended_s = seconds_since(status.completion_time, observed.now)
    if run.ttl_after_finished_s is None or ended_s is None or loop.goes_on:
        return plan
    left_s = run.ttl_after_finished_s - ended_s
    if left_s <= 0:
        return Plan(status=plan.status, deletes=plan.deletes, delete_self=True)
    return replace(plan, requeue_after_s=earliest(plan.requeue_after_s, left_s))
