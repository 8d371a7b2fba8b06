"""Brings the reports of rank 0 into `status.progress`: only what grew in (attempt, seq), and only what can be true.

A report comes from the bucket or, at a pod's end, from its termination message. Step and epoch belong to the attempt
that reports: within one attempt they never go back, but a new attempt starts from a checkpoint (`resumedFrom`) and
trains the steps after it again. Until it has loaded, progress shows the checkpoint.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lead_operator.decisions.figures import format_duration, format_number, format_rate, format_time
from lead_operator.decisions.instance_state import InstanceState
from lead_protocol.progress_record import ProgressRecord, parse_progress

LIVE_FIELDS = ("samplesPerSecond", "rate", "etaSeconds", "eta")  # true only while steps arrive
LOADING = ("Starting", "Loading")  # phases of a report before the attempt knows where it starts
MAX_ETA_S = 10 * 365 * 86400


@dataclass(frozen=True)
class Progress:
    """What is known of the current instance's progress."""

    fields: dict[str, Any]  # status.progress
    record: ProgressRecord | None  # the report it rests on
    refused: str  # why a report was not believed; empty when all were


def read_progress(state: InstanceState, before: dict[str, Any], now: datetime) -> Progress:
    """Returns the progress of an instance; `before` is status.progress if it was of the same instance, else empty."""
    record, refused = _newest_record(state, before)
    fields = dict(before)
    if record is not None and _number(record.attempt, record.seq) > _number(before.get("attempt"), before.get("seq")):
        fields = _apply(before, record, now, _start(state, before))
    checkpoint = state.checkpoint
    if checkpoint is not None and "step" not in fields:
        fields.update(epoch=checkpoint.epoch, step=checkpoint.step)
    if state.final_committed and state.succeeded and checkpoint is not None:
        fields.update(epoch=state.epochs_trained, step=max(checkpoint.step, int(fields.get("step") or 0)))
    texts = _with_texts(fields, state.instance.stage.epochs)
    return Progress({**texts, "percent": 100} if state.succeeded else texts, record, refused)


def without_live_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Returns progress without rate and time left, which nobody can promise while nothing runs."""
    return {key: value for key, value in fields.items() if key not in LIVE_FIELDS}


def _newest_record(state: InstanceState, before: dict[str, Any]) -> tuple[ProgressRecord | None, str]:
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


def _implausible(report: ProgressRecord, state: InstanceState, before: dict[str, Any]) -> str:
    if report.attempt > state.attempt:
        return f"a report of attempt {report.attempt} came in, but the newest attempt is {state.attempt}"
    if report.epoch > state.instance.stage.epochs:
        return f"a report tells {report.epoch} epochs of {state.instance.stage.epochs}"
    if report.steps and report.step > report.steps:
        return f"a report tells {report.step} steps of {report.steps}"
    newer = _number(report.attempt, report.seq) > _number(before.get("attempt"), before.get("seq"))
    began = report.attempt == before.get("attempt") and before.get("phase") not in LOADING
    if newer and began and report.step > 0 and report.step < int(before.get("step") or 0):
        return f"a report went back from step {before.get('step')} to {report.step} within attempt {report.attempt}"
    return ""


def _start(state: InstanceState, before: dict[str, Any]) -> dict[str, Any]:
    """Returns the position at which a new attempt starts, as far as it is known before its first step."""
    if state.bucket is None:
        return {key: before[key] for key in ("epoch", "step") if key in before}
    found = state.checkpoint
    return {"epoch": found.epoch if found else 0, "step": found.step if found else 0}


def _apply(before: dict[str, Any], record: ProgressRecord, now: datetime, start: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {key: before[key] for key in ("steps", "loss", "metrics") if key in before}
    if record.attempt == before.get("attempt"):
        fields.update((key, before[key]) for key in ("epoch", "step", "advancedAt") if key in before)
    else:
        fields.update(start)
    if _tells_position(record):
        fields.update(epoch=record.epoch, step=record.step)
        if record.steps:
            fields["steps"] = record.steps
    advanced = (
        record.phase != "Training"
        or record.phase != before.get("phase")
        or (fields.get("step"), fields.get("epoch")) != (before.get("step"), before.get("epoch"))
    )
    fields.update(attempt=record.attempt, seq=record.seq, phase=record.phase, reportedAt=format_time(now))
    if advanced or "advancedAt" not in fields:
        fields["advancedAt"] = format_time(now)
    if record.loss is not None:
        fields["loss"] = format_number(record.loss)
    if record.metrics:
        fields["metrics"] = {name: format_number(value) for name, value in sorted(record.metrics.items())}
    if record.phase in ("Training", "Checkpointing"):
        fields.update(_live(record))
    return fields


def _tells_position(record: ProgressRecord) -> bool:
    """Whether step and epoch are the attempt's: zeros are not while it loads, nor of a rank that ends unheard."""
    return record.step > 0 or record.epoch > 0 or record.phase in ("Training", "Checkpointing")


def _live(record: ProgressRecord) -> dict[str, Any]:
    live: dict[str, Any] = {}
    if record.samples_per_s is not None:
        live.update(samplesPerSecond=round(record.samples_per_s, 2), rate=format_rate(record.samples_per_s))
    if record.eta_s is not None and record.eta_s <= MAX_ETA_S:
        live.update(etaSeconds=int(record.eta_s), eta=format_duration(record.eta_s))
    return live


def _with_texts(fields: dict[str, Any], epochs: int) -> dict[str, Any]:
    epoch = int(fields.get("epoch") or 0)
    fields = {**fields, "epoch": epoch, "epochs": epochs, "epochText": f"{epoch}/{epochs}"}
    if "step" in fields:
        step, steps = int(fields["step"]), int(fields.get("steps") or 0)
        fields["stepText"] = f"{step}/{steps}" if steps else str(step)
        fields["percent"] = min(100, 100 * step // steps) if steps else min(100, 100 * epoch // epochs)
    return fields


def _number(attempt: object, seq: object) -> tuple[int, int]:
    return (
        attempt if isinstance(attempt, int) else 0,
        seq if isinstance(seq, int) else -1,
    )
