"""Records that are written before status reports them, so that an erased status restarts no run. Pure.

The final result is reported at once even during a store outage, because users wait for it and an erased status is rare.
Status then has StorageAvailable=False: so a later pass, also after a restart, knows that the bucket
still lacks it. Until then an erased status does start the run again. Restarts that the store did not take are
recorded, all in one, when it is back.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from lead_operator.decisions.conditions import Finding, storage_available, update_conditions
from lead_operator.decisions.observed import ObservedRun
from lead_operator.decisions.plan import RunRecord
from lead_operator.decisions.training_run.restarts import Restarts, read_restarts
from lead_operator.decisions.training_run.state import InstanceState, Step
from lead_operator.decisions.training_run.view import RunView
from lead_operator.names import Condition, RunPhase
from lead_operator.resources.status_format import ConditionStatus
from lead_operator.resources.training_run import TrainingRun
from lead_operator.resources.training_run_status import TrainingRunStatus
from lead_protocol.object_keys import ControlKeys
from lead_protocol.run_records import InstanceRestarts, RestartRecord, RunEnd, StartedAttempt


def run_records(view: RunView, step: Step, status: TrainingRunStatus) -> tuple[RunRecord, ...]:
    """Returns what a step counts and decides for good, as control records; none where it cannot be read."""
    if view.unreadable:
        return ()
    records = [*_started(view, step), *_done(view)]
    if step.restarts != view.restarts or _owes_restarts(view):
        records.append(_restarts(view.run, step.restarts, step.states))
    if step.phase in (RunPhase.SUCCEEDED, RunPhase.FAILED) and view.observed.ended is None:
        records.append(_verdict(view.run, status))
    return tuple(records)


def store_is_back(observed: ObservedRun) -> bool:
    """Returns whether a run ended while the store was away, which it is no more."""
    condition = observed.status.condition(Condition.STORAGE_AVAILABLE)
    return (
        condition is not None
        and condition.status == "False"
        and not observed.store_error
        and not observed.profile_error
    )


def owed_verdict(run: TrainingRun, observed: ObservedRun) -> tuple[RunRecord, ...]:
    """Returns the verdict that the store has not taken yet."""
    return () if observed.ended else (_verdict(run, observed.status),)


def with_the_store(status: TrainingRunStatus, now: datetime) -> TrainingRunStatus:
    """Returns the status of a run that has ended, once the store takes its verdict."""
    return _with_finding(status, storage_available("", ""), status, now)


def without_the_store(
    before: TrainingRunStatus, status: TrainingRunStatus, error: str, now: datetime
) -> TrainingRunStatus:
    """Returns the status to write where the store did not take the verdict; `before` as it was read.

    An earlier report of the outage stays unchanged, so that an outage costs no write after the first.
    """
    condition = before.condition(Condition.STORAGE_AVAILABLE)
    if condition is not None and condition.status == "False":
        return _with_condition(status, condition)
    return _with_finding(before, storage_available(error, ""), status, now)


def _with_finding(
    before: TrainingRunStatus, finding: Finding, status: TrainingRunStatus, now: datetime
) -> TrainingRunStatus:
    generation = status.observed_generation or 0
    (condition,) = update_conditions(before.conditions, [finding], generation=generation, now=now)
    return _with_condition(status, condition)


def _with_condition(status: TrainingRunStatus, condition: ConditionStatus) -> TrainingRunStatus:
    return replace(
        status, conditions=tuple(condition if each.type == condition.type else each for each in status.conditions)
    )


def _started(view: RunView, step: Step) -> Iterator[RunRecord]:
    """The attempts in status; each once it is reported, so that a failed write uses up no number."""
    for state, decided in zip(view.states, step.states, strict=True):
        known = decided.attempt > state.attempt or decided.nodes_known
        if state.bucket is not None and known and state.attempt > state.bucket.recorded_attempt:
            stage, seed = state.instance.stage.name, state.instance.seed
            key = _keys(view.run).attempt(stage, seed, state.attempt)
            sources = [*view.datasets.sources.values()]
            record = StartedAttempt(
                attempt=state.attempt,
                nodes=decided.nodes if decided.attempt == state.attempt else state.nodes,
                config_hash=view.started_hash,
                datasets=sources,
            )
            yield RunRecord(key, record.model_dump_json().encode())


def _done(view: RunView) -> Iterator[RunRecord]:
    """The stage instances whose final checkpoint was seen: a status alone ends none."""
    for state in view.states:
        if state.bucket is not None and state.succeeded and not state.bucket.done:
            stage, seed = state.instance.stage.name, state.instance.seed
            yield RunRecord(_keys(view.run).done(stage, seed), json.dumps({"epoch": state.epochs_trained}).encode())


def _restarts(run: TrainingRun, restarts: Restarts, states: tuple[InstanceState, ...]) -> RunRecord:
    record = RestartRecord(
        program=restarts.program,
        infrastructure=restarts.infrastructure,
        voluntary=restarts.voluntary,
        instances=[
            InstanceRestarts(
                stage=state.instance.stage.name,
                seed=state.instance.seed,
                at_step=state.backoff.at_step,
                errors=state.backoff.errors,
                ends=state.backoff.ends,
                failed_attempt=state.backoff.failed_attempt,
                failed_at=state.backoff.failed_at,
                reason=state.backoff.reason,
            )
            for state in states
            if state.backoff.failed_attempt > 0
        ],
    )
    return RunRecord(_keys(run).restarts(restarts.total), record.model_dump_json().encode(), counts=True)


def _owes_restarts(view: RunView) -> bool:
    """Whether status reports restarts that could not be recorded during a store outage."""
    held = read_restarts(None, view.observed.restart_record, ())
    return store_is_back(view.observed) and not view.observed.erased and view.restarts.total > held.total


def _verdict(run: TrainingRun, status: TrainingRunStatus) -> RunRecord:
    succeeded = status.holds(Condition.SUCCEEDED)
    condition = status.condition(Condition.SUCCEEDED if succeeded else Condition.FAILED)
    assert condition is not None  # the caller has seen that it ended
    end = RunEnd(
        phase="Succeeded" if succeeded else "Failed",
        reason=condition.reason,
        message=condition.message,
        ended_at=status.completion_time or condition.last_transition_time,
    )
    return RunRecord(_keys(run).ended, end.model_dump_json().encode(), final=True)


def _keys(run: TrainingRun) -> ControlKeys:
    return ControlKeys(run.identity.namespace, run.identity.uid)
