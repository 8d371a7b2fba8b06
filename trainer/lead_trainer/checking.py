"""A check pod's work: what a run's recipe makes of its configuration, while the run waits for its data or its turn.

It reads no data, asks no store, and has an answer within seconds; `manifest_check` judges, as for `lead render`.
"""

from pathlib import Path

from lead_protocol.check_record import MAX_MESSAGE, CheckRecord
from lead_protocol.exit_codes import ExitCode
from lead_protocol.job import CheckJob
from lead_trainer.errors import BadConfig, exit_code_of
from lead_trainer.manifest_check import judge


def run_check_job(job: CheckJob, termination_log: Path) -> int:
    """Judges each stage's configuration, leaves the answer for the kubelet and returns the exit code."""
    faults: dict[str, str] = {}  # by sentence: one that all stages share is reported once
    code = int(ExitCode.DONE)
    for stage in job.train_jobs:
        try:
            judge(stage)
        except BadConfig as error:
            faults.setdefault(str(error), stage.stage)
            code = code or exit_code_of(error)
    message = "; ".join(_named(job, stage, fault) for fault, stage in faults.items())
    record = CheckRecord(accepted=not faults, message=message[:MAX_MESSAGE])
    termination_log.write_text(record.model_dump_json())
    print(message or f"recipe {job.recipe} accepts the configuration", flush=True)
    return code


def _named(job: CheckJob, stage: str, fault: str) -> str:
    return f"stage {stage}: {fault}" if len(job.stages) > 1 else fault
