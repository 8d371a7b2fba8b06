"""status.stages: how far each stage of a DatasetCache's build is; nothing where the build has no stages. Pure.

Derived at every pass, from the workers of `state` and the newest records of their pods.
"""

from lead_operator.decisions.dataset_cache.health import why_waiting
from lead_operator.decisions.dataset_cache.state import BuildState, Worker, worker_pod_name
from lead_operator.decisions.formatting import shorten
from lead_operator.decisions.observed import ObservedBuild
from lead_operator.names import CachePhase
from lead_operator.resources.build_stages import BuildStage
from lead_operator.resources.dataset_cache import DatasetCache
from lead_operator.resources.dataset_cache_status import BuildStageStatus, DoneOfTotal
from lead_operator.resources.status_format import MAX_MESSAGE, FailureStatus

PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"


def stage_entries(
    cache: DatasetCache, state: BuildState, observed: ObservedBuild, phase: CachePhase, failure: FailureStatus | None
) -> tuple[BuildStageStatus, ...]:
    """Returns an entry a stage, in the order of the spec, the last one as `merge`; empty for a build without stages."""
    if not cache.in_stages:
        return ()
    return tuple(_entry(cache, stage, state, observed, phase, failure) for stage in cache.stages)


def at_work(entries: tuple[BuildStageStatus, ...]) -> tuple[BuildStageStatus, ...]:
    """Returns the entries of the stages that are at work."""
    return tuple(entry for entry in entries if entry.phase == RUNNING)


def how_far(entries: tuple[BuildStageStatus, ...]) -> list[str]:
    """Returns a clause for each stage that is at work."""
    return [
        f"stage {entry.name}: {_of(entry.pods)} pods are done"
        + (f", {_of(entry.samples)} samples are made" if entry.samples is not None else "")
        for entry in at_work(entries)
    ]


def _of(count: DoneOfTotal | None) -> str:
    return f"{count.done} of {count.total}" if count is not None else "none"


def _entry(
    cache: DatasetCache,
    stage: BuildStage,
    state: BuildState,
    observed: ObservedBuild,
    phase: CachePhase,
    failure: FailureStatus | None,
) -> BuildStageStatus:
    workers = state.of_stage(stage.name)
    stage_phase, message = _phase(cache, stage, state, phase, failure)
    records = [report.record for report in observed.reports if report.stage == stage.name]
    total = sum(record.share_samples for record in records)
    return BuildStageStatus(
        name=stage.shown_name,
        phase=stage_phase,
        pods=DoneOfTotal(done=sum(worker.done for worker in workers), total=len(workers)),
        samples=DoneOfTotal(done=sum(record.samples_done for record in records), total=total) if total else None,
        message=shorten(message, MAX_MESSAGE) if message else "",
    )


def _phase(
    cache: DatasetCache, stage: BuildStage, state: BuildState, phase: CachePhase, failure: FailureStatus | None
) -> tuple[str, str]:
    workers = state.of_stage(stage.name)
    if state.is_complete(stage.name):
        return SUCCEEDED, ""
    pods = [worker_pod_name(cache, state.generation, worker) for worker in workers]
    if phase is CachePhase.FAILED and failure is not None and failure.pod in pods:
        return FAILED, f"{failure.reason}: {failure.message}"
    awaited = [name for name in stage.after if not state.is_complete(name)]
    if awaited:
        return PENDING, f"waits for {', '.join(awaited)}"
    if phase is CachePhase.FAILED or not any(worker.attempt for worker in workers):
        return PENDING, ""
    return RUNNING, _why_not(workers)


def _why_not(workers: tuple[Worker, ...]) -> str:
    """Returns what keeps shares of a stage from going on: pods that do not start, shares that are tried again."""
    waiting = sorted({reason for worker in workers if (reason := why_waiting(worker))})
    again = sum(1 for worker in workers if not worker.done and not worker.active and worker.ended)
    texts = [f"pods wait: {', '.join(waiting)}"] if waiting else []
    return "; ".join([*texts, f"{again} shares are tried again"] if again else texts)
