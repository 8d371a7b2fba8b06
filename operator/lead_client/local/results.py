"""What a local run has written, as the status of a TrainingRun."""

from pathlib import Path
from typing import Any

from lead_client.checkpoints import Instance, checkpoints_of
from lead_client.local.folder import RunFolder, State
from lead_client.local.plan import StageRun
from lead_client.objects.training_run_status import TrainingRunStatus
from lead_protocol.exit_codes import ExitCode
from lead_protocol.object_keys import LOCAL_FOLDER, LOCAL_NAMESPACE, LOCAL_UID, InstanceKeys, RunKeys
from lead_protocol.progress_record import MAX_RECORD_BYTES, ProgressRecord
from lead_protocol.store.folder import FolderStore
from lead_protocol.strict_model import parse_or_none

_GONE = "the process that trained it is gone; resume() goes on from the newest checkpoint"


def local_instance(logdir: Path, stage: str, seed: int) -> Instance | None:
    """Returns where the objects of a logdir lie; None before its run has begun."""
    root = logdir / LOCAL_FOLDER
    below = root / RunKeys(LOCAL_NAMESPACE, LOCAL_UID).prefix
    names = sorted(path.name for path in below.iterdir()) if below.is_dir() else []
    for name in names:
        trained, _, number = name.rpartition("-s")
        if trained and number == str(seed):
            keys = InstanceKeys(LOCAL_NAMESPACE, LOCAL_UID, trained, seed)
            return Instance(stage, seed, FolderStore(root), keys, events=logdir)
    return None


def newest_progress(instance: Instance) -> ProgressRecord | None:
    """Returns the progress record of the newest attempt."""
    found = [info.key for info in instance.store.list(instance.keys.progress_prefix)]
    if not found:
        return None
    data = instance.store.get(max(found), max_bytes=MAX_RECORD_BYTES)
    return parse_or_none(ProgressRecord, data, MAX_RECORD_BYTES)


def status_of(folder: RunFolder, plan: list[StageRun]) -> TrainingRunStatus:
    """Returns the status of a local run, with the phases and conditions of a cluster's."""
    alive, state = folder.worker() is not None, folder.state()
    stages = [_stage(folder, one, state, alive) for one in plan]
    current = next((each for each in stages if each["phase"] != "Succeeded"), stages[-1])
    failed = next((name for name, each in state.ended.items() if each.exit_code), None)
    reason, message = "", ""
    if failed is not None:
        phase, ended = "Failed", state.ended[failed]
        known = ended.exit_code in ExitCode.__members__.values()
        reason = _camel(ExitCode(ended.exit_code).name) if known else "ProgramError"
        message = f"stage {failed}: {ended.message}"
    elif all(each["phase"] == "Succeeded" for each in stages):
        phase = reason = "Succeeded"
    elif alive:
        phase = str(current["phase"])
    else:
        phase, reason = "Suspended", "SuspendRequested" if state.suspended else "ProcessEnded"
        message = "on request; resume() goes on from the newest checkpoint" if state.suspended else _GONE
    conditions = [{"type": kind, "status": str(phase == kind), "reason": reason or phase, "message": message}
                  for kind in ("Succeeded", "Failed", "Suspended")]  # fmt: skip
    return TrainingRunStatus.model_validate(
        {"phase": phase, "reason": reason, "stages": stages, "conditions": conditions, "display": _display(current)}
    )


def _stage(folder: RunFolder, one: StageRun, state: State, alive: bool) -> dict[str, Any]:
    ended, times = state.ended.get(one.name), state.times.get(one.name, [])
    found: dict[str, Any] = {"name": one.stage, "seed": one.seed, "phase": "Pending"}
    if times:
        found |= {"phase": "Starting", "startTime": times[0], **({"completionTime": times[1]} if times[1:] else {})}
    instance = local_instance(folder.logdir(one.name), one.stage, one.seed)
    if instance is not None and (record := newest_progress(instance)) is not None:
        found["attempt"] = record.attempt
        found["phase"] = "Starting" if record.phase in ("Starting", "Loading") else "Running"
        found["progress"] = {
            "attempt": record.attempt, "phase": record.phase, "epoch": record.epoch, "epochs": record.epochs,
            "step": record.step, "steps": record.steps,
            "loss": None if record.loss is None else f"{record.loss:.4g}",
            "metrics": {name: f"{value:.6g}" for name, value in record.metrics.items()},
            "milliSamplesPerSecond": None if record.samples_per_s is None else round(record.samples_per_s * 1000),
            "etaSeconds": None if record.eta_s is None else round(record.eta_s),
        }  # fmt: skip
        if newest := checkpoints_of(instance)[:1]:
            one_of = newest[0]
            found["checkpoint"] = {"uri": str(folder.logdir(one.name)), "step": one_of.step, "epoch": one_of.epoch,
                                   "savedAt": one_of.manifest.saved_at, "sizeBytes": one_of.size_bytes}  # fmt: skip
    if ended is not None:
        found["phase"] = "Failed" if ended.exit_code else "Succeeded"
    elif not alive:
        found["phase"] = "Suspended" if times else "Pending"
    return found


def _display(stage: dict[str, Any]) -> dict[str, str | None]:
    progress = stage.get("progress") or {}
    rate, eta = progress.get("milliSamplesPerSecond"), progress.get("etaSeconds")
    return {
        "stage": stage["name"],
        "epoch": f"{progress['epoch']}/{progress['epochs']}" if progress else None,
        "step": f"{progress['step']}/{progress['steps']}" if progress else None,
        "loss": progress.get("loss"),
        "rate": f"{rate / 1000:.4g}/s" if rate else None,
        "eta": f"{eta}s" if eta is not None else None,
    }


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))
