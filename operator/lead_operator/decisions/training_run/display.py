"""status.display of a TrainingRun: the texts that the columns of `kubectl get` print. Pure.

A column's path into the status is fixed, and which of the stage instances is trained now is not: so the columns read
one object, and the numbers stand where they belong.
"""

from lead_operator.decisions.formatting import format_duration, format_rate
from lead_operator.resources.training_run_status import (
    InstanceStatus,
    PodsStatus,
    ProgressStatus,
    RunDisplay,
    SessionCacheStatus,
)

MAX_NODES_TEXT = 256


def run_display(
    entry: InstanceStatus, stage: str, pods: PodsStatus, nodes: tuple[str, ...], cache: SessionCacheStatus | None
) -> RunDisplay:
    """Returns the texts; `entry` and `stage` are of the instance that is trained now, or was last."""
    progress = entry.progress or ProgressStatus()
    rate, left_s = progress.milli_samples_per_second, progress.eta_seconds
    reads = cache.hits + cache.misses if cache else 0
    return RunDisplay(
        stage=stage,
        epoch=f"{progress.epoch}/{progress.epochs}",
        step=_of(progress.step, progress.steps),
        loss=progress.loss,
        rate="" if rate is None else format_rate(rate / 1000),
        eta="" if left_s is None else format_duration(left_s),
        checkpoint_time=entry.checkpoint.saved_at if entry.checkpoint else None,
        resumed_from="" if entry.resumed_from_step is None else f"step {entry.resumed_from_step}",
        pods=f"{pods.ready}/{pods.desired}",
        nodes=",".join(nodes)[:MAX_NODES_TEXT],
        cache_hits=f"{100 * cache.hits // reads}%" if cache and reads else "",
    )


def _of(step: int | None, steps: int | None) -> str:
    if step is None:
        return ""
    return f"{step}/{steps}" if steps else str(step)
