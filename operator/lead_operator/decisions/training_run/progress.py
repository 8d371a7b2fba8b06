"""Merges the reports of rank 0 into `status.stages[].progress`: only what grew, and only what can be true.

A report comes from the bucket or, at a pod's end, from its termination message. Step and epoch belong to the attempt
that reports: within one attempt they never go back, but a new attempt starts from a checkpoint (`resumedFromStep`) and
trains the steps after it again. Until it has loaded, progress shows the checkpoint.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from lead_operator.decisions.formatting import format_number, format_time
from lead_operator.decisions.training_run.state import InstanceState
from lead_operator.resources.training_run_status import ProgressStatus
from lead_protocol.progress_record import ProgressRecord, parse_progress

LOADING = ("Starting", "Loading")  # phases of a report before the attempt knows where it starts
MAX_ETA_S = 10 * 365 * 86400


@dataclass(frozen=True)
class Progress:
    """What is known of the current instance's progress."""

    fields: ProgressStatus
    record: ProgressRecord | None  # the report it rests on
    refused: str  # why a report was not believed; empty when all were


def read_progress(state: InstanceState, before: ProgressStatus, now: datetime) -> Progress:
    """Returns the progress of an instance; `before` is what its entry in the status held."""
    record, refused = _newest_record(state, before)
    fields, checkpoint = before, state.checkpoint
    if record is not None and (record.attempt, record.seq) > before.order:
        fields = _apply(before, record, now, _start(state, before))
    if checkpoint is not None and fields.step is None:
        fields = replace(fields, epoch=checkpoint.epoch, step=checkpoint.step)
    if state.final_committed and state.succeeded and checkpoint is not None:
        fields = replace(fields, epoch=state.epochs_trained, step=max(checkpoint.step, fields.step or 0))
    fields = _with_percent(replace(fields, epochs=state.instance.stage.epochs), state.succeeded)
    return Progress(fields, record, refused)


def without_live_fields(fields: ProgressStatus) -> ProgressStatus:
    """Returns progress without rate and time left, which nobody can promise while nothing runs."""
    return replace(fields, milli_samples_per_second=None, eta_seconds=None)


def final_fields(state: InstanceState, fields: ProgressStatus) -> ProgressStatus:
    """Returns what is kept of the progress of an instance that has ended: a run may have a hundred of them.

    The metrics of an evaluation are its result.
    """
    return ProgressStatus(
        epoch=fields.epoch,
        epochs=fields.epochs,
        step=fields.step,
        steps=fields.steps,
        percent=fields.percent,
        loss=fields.loss,
        metrics=fields.metrics if state.instance.stage.evaluates else {},
    )


def _newest_record(state: InstanceState, before: ProgressStatus) -> tuple[ProgressRecord | None, str]:
    reports = [state.bucket.progress] if state.bucket else []
    reports += [parse_progress(p.message.encode()) for p in state.attempt_pods if p.message.startswith("{")]
    newest: ProgressRecord | None = None
    refused = ""
    for report in reports:
        if report is None:
            continue
        if reason := _implausible(report, state, before):
            refused = refused or reason
        elif newest is None or (report.attempt, report.seq) > (newest.attempt, newest.seq):
            newest = report
    return newest, refused


def _implausible(report: ProgressRecord, state: InstanceState, before: ProgressStatus) -> str:
    if report.attempt > state.attempt:
        return f"a report of attempt {report.attempt} came in, but the newest attempt is {state.attempt}"
    if report.epoch > state.instance.stage.epochs:
        return f"a report claims {report.epoch} epochs of {state.instance.stage.epochs}"
    if report.steps and report.step > report.steps:
        return f"a report claims {report.step} steps of {report.steps}"
    newer = (report.attempt, report.seq) > before.order
    began = report.attempt == before.attempt and before.phase not in LOADING
    if newer and began and report.step > 0 and report.step < (before.step or 0):
        return f"a report went back from step {before.step} to {report.step} within attempt {report.attempt}"
    return ""


def _start(state: InstanceState, before: ProgressStatus) -> tuple[int, int | None]:
    """Returns epoch and step at which a new attempt starts, as far as they are known before its first step."""
    if state.bucket is None:
        return before.epoch, before.step
    found = state.checkpoint
    return (found.epoch, found.step) if found else (0, 0)


def _apply(
    before: ProgressStatus, record: ProgressRecord, now: datetime, start: tuple[int, int | None]
) -> ProgressStatus:
    same = record.attempt == before.attempt
    epoch, step = (before.epoch, before.step) if same else start
    steps = before.steps
    if _has_position(record):
        epoch, step, steps = record.epoch, record.step, record.steps or before.steps
    advanced = (
        record.phase != "Training" or record.phase != before.phase or (step, epoch) != (before.step, before.epoch)
    )
    advanced_at = None if advanced or not same else before.advanced_at
    fields = ProgressStatus(
        attempt=record.attempt,
        sequence=record.seq,
        phase=record.phase,
        epoch=epoch,
        step=step,
        steps=steps,
        loss=before.loss if record.loss is None else format_number(record.loss),
        metrics={name: format_number(value) for name, value in sorted(record.metrics.items())} or before.metrics,
        reported_at=format_time(now),
        advanced_at=advanced_at or format_time(now),
    )
    return _with_live_fields(fields, record) if record.phase in ("Training", "Checkpointing") else fields


def _has_position(record: ProgressRecord) -> bool:
    """Whether step and epoch are the attempt's: zeros are not while it loads, nor of a rank that ends unheard."""
    return record.step > 0 or record.epoch > 0 or record.phase in ("Training", "Evaluating", "Checkpointing")


def _with_live_fields(fields: ProgressStatus, record: ProgressRecord) -> ProgressStatus:
    if record.samples_per_s is not None:
        fields = replace(fields, milli_samples_per_second=round(1000 * record.samples_per_s))
    if record.eta_s is not None and record.eta_s <= MAX_ETA_S:
        fields = replace(fields, eta_seconds=int(record.eta_s))
    return fields


def _with_percent(fields: ProgressStatus, succeeded: bool) -> ProgressStatus:
    if succeeded:
        return replace(fields, percent=100)
    if fields.step is None:
        return fields
    done, of = (fields.step, fields.steps) if fields.steps else (fields.epoch, fields.epochs)
    return replace(fields, percent=min(100, 100 * done // of))
