"""What is wrong with one share of a build: its pod failed, is gone, hangs, or does not start. Pure.

Called by `plan`, which turns the results into steps. A working pod reports again and again: it repeats
its last record while it lists and reads, so that silence means that something blocks it.
"""

from dataclasses import replace

from lead_operator.decisions.dataset_cache.state import NODE_LOSS_S, Worker, worker_pod_name
from lead_operator.decisions.failure_policy import (
    OOM_KILLED,
    Failure,
    explain_missing,
    explain_outdated,
    explain_pod,
)
from lead_operator.decisions.formatting import parse_time, shorten
from lead_operator.decisions.observed import BuildReport, ObservedBuild, ObservedPod
from lead_operator.names import Condition
from lead_operator.resources.dataset_cache import DatasetCache
from lead_operator.resources.status_format import MAX_MESSAGE
from lead_operator.settings import Settings
from lead_protocol.exit_codes import ExitClass

# As failurePolicy.hangTimeoutSeconds by default. No field: how often a pod repeats itself does not depend on its data.
HANG_S = 1800.0


def find_build_failure(
    cache: DatasetCache, worker: Worker, observed: ObservedBuild, settings: Settings
) -> Failure | None:
    """Returns why the current attempt at a share ended or has to, or None while it has not."""
    if not worker.active:
        return None
    if worker.pod is not None:
        failure = explain_pod(worker.pod, now=observed.now, node_loss_s=NODE_LOSS_S)
        if failure is not None and failure.reason == OOM_KILLED:
            path = cache.stage(worker.stage).path.removeprefix("spec.")
            return replace(failure, message=_too_little_memory(worker.pod, _last_report(worker, observed), path))
        failure = failure or explain_outdated(worker.pod, settings.pulls)
        return failure or _find_silence(worker, worker.pod, observed)
    if not worker.created:
        return None
    return explain_missing(worker_pod_name(cache, cache.identity.generation, worker))


def why_waiting(worker: Worker) -> str:
    """Returns the reason why a share's pod does not start; empty where it has started, or nothing is known."""
    waits = worker.active and worker.pod is not None and worker.pod.phase == "Pending"
    return worker.pod.waiting_reason if waits and worker.pod is not None else ""


def _find_silence(worker: Worker, pod: ObservedPod, observed: ObservedBuild) -> Failure | None:
    """Returns the failure of a running pod without progress; unread reports prove nothing."""
    readable = observed.status.condition(Condition.STORAGE_AVAILABLE)
    if pod.phase != "Running" or pod.deleting or observed.store_error or readable is None or readable.status != "True":
        return None  # right after a store outage, the report may still be an old one
    report = _last_report(worker, observed)
    started = min(pod.started_at, observed.now) if pod.started_at is not None else None  # a node's clock may be ahead
    moments = [pod.created_at, started, parse_time(readable.last_transition_time), report.since if report else None]
    known = [moment for moment in moments if moment is not None]
    if not known or (observed.now - max(known)).total_seconds() < HANG_S:
        return None
    text = (
        f"pod {pod.name} on node {pod.node} reported no progress for {HANG_S:.0f} s; {_described(report)}; another pod "
        "goes on from the complete shards; if that one falls silent too, see whether the volume or bucket of "
        "spec.source and the node's disk answer"
    )
    return Failure(ExitClass.INFRASTRUCTURE, "Hung", shorten(text, MAX_MESSAGE), 0, pod.name, pod.node[:253])


def _too_little_memory(pod: ObservedPod, report: BuildReport | None, path: str) -> str:
    text = (
        f"pod {pod.name} needed more memory than {path}.limits.memory; {_described(report)}; a data file of "
        "spec.source may be crafted or far larger than the others; if there is none, raise "
        f"{path}.limits.memory"
    )
    return shorten(text, MAX_MESSAGE)


def _last_report(worker: Worker, observed: ObservedBuild) -> BuildReport | None:
    own = (report for report in observed.reports if (report.stage, report.index) == worker.share)
    current = (report for report in own if report.record.attempt == worker.attempt)
    return next(current, None)


def _described(report: BuildReport | None) -> str:
    if report is None:
        return "it has reported nothing at all"
    record = report.record
    packed = f", {record.samples_done} of {record.share_samples} samples of its share" if record.share_samples else ""
    return f"its last report was {record.phase}{packed}"
