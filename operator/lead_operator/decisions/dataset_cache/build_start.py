"""Which pods of a build come next, stage by stage and share by share, and what keeps them from it. Pure.

Asked by `dataset_cache_plan` when the ends of earlier pods are accounted for.
"""

from dataclasses import replace

from lead_operator.decisions.dataset_cache.health import why_waiting
from lead_operator.decisions.dataset_cache.state import (
    STORAGE_UNAVAILABLE,
    BuildState,
    CacheStep,
    Worker,
    retire_pods,
    worker_pod_name,
)
from lead_operator.decisions.failure_policy import pause_s
from lead_operator.decisions.formatting import seconds_since
from lead_operator.decisions.observed import ObservedBuild
from lead_operator.decisions.plan import SOON_S, PodToDelete, remove
from lead_operator.decisions.policy_check import NOT_ALLOWED, cache_violations, explain
from lead_operator.decisions.remedies import CACHE_FIELDS, OBJECTS_REFUSED, RESOURCES_OF_POD, explain_invalid
from lead_operator.errors import SpecError
from lead_operator.names import CachePhase
from lead_operator.objects.build_pod import build_cache_pod
from lead_operator.resources.dataset_cache import DatasetCache
from lead_operator.resources.status_format import JsonObject
from lead_operator.settings import Settings


def start_pods(cache: DatasetCache, observed: ObservedBuild, settings: Settings, step: CacheStep) -> CacheStep:
    """Returns the step with the pods that come next: of every stage whose predecessors are complete."""
    _refuse_invalid(cache, observed, step.state)
    if (beyond := beyond_policy(cache, observed, settings)) and not any(w.attempt for w in step.state.workers):
        refused = replace(step, phase=CachePhase.PENDING, reason=NOT_ALLOWED, message=beyond)
        return replace(refused, requeue_after_s=settings.resync_s)
    deletes: list[PodToDelete] = []
    creates: list[JsonObject] = []
    state, claim, requeue_s = step.state, step.claim, step.requeue_after_s or settings.progress_s
    for worker in state.workers:
        if worker.done or not state.is_complete(*cache.stage(worker.stage).after):
            continue
        live = tuple(p for p in worker.pods if not p.terminal and not (worker.active and p is worker.pod))
        deletes += retire_pods(live, observed)
        if not worker.active:
            left_s = _pause_left_s(worker, observed)
            # A pod past its grace period is not waited for: shards are create-only, and equal from every writer.
            if any(not p.is_past_deadline(observed.now) for p in live) or left_s > 0 or observed.store_error:
                requeue_s = min(requeue_s, max(SOON_S, left_s))
                continue
            worker = replace(worker, attempt=worker.attempt + 1, ended=worker.attempt, created=False)
            state, claim = state.with_worker(worker), True
            old = (p for p in worker.pods if p.terminal and p.attempt < worker.ended)
            deletes += [remove(pod) for pod in old]
        if worker.pod is None and not worker.created:
            profile = settings.storage_profiles[cache.storage_profile]
            creates.append(
                build_cache_pod(
                    cache,
                    stage=cache.stage(worker.stage),
                    attempt=worker.attempt,
                    index=worker.index,
                    profile=profile,
                    settings=settings,
                )
            )
    waiting = next(filter(None, map(why_waiting, state.workers)), step.reason)
    reason = OBJECTS_REFUSED if observed.apply_error and creates else waiting
    if observed.store_error and reason == step.reason:
        reason = STORAGE_UNAVAILABLE
    begun = any(worker.attempt or worker.done for worker in state.workers)
    return replace(
        step,
        phase=step.phase if begun else CachePhase.PENDING,
        state=state,
        reason=reason,
        deletes=tuple(deletes),
        creates=tuple(creates),
        claim=claim,
        requeue_after_s=requeue_s,
    )


def beyond_policy(cache: DatasetCache, observed: ObservedBuild, settings: Settings) -> str:
    """Returns what a cache requests beyond the administrator's lists, as text; empty if nothing."""
    return explain(cache.identity, cache_violations(cache, settings, observed.source_claim_owner))


def _refuse_invalid(cache: DatasetCache, observed: ObservedBuild, state: BuildState) -> None:
    """Raises SpecError where the API server holds the very first pods of a spec, or of a stage, for invalid."""
    for stage in cache.stages:
        workers = state.of_stage(stage.name)
        pods = (worker_pod_name(cache, cache.identity.generation, each) for each in workers)
        if cache.in_stages and not any(f'"{pod}"' in observed.apply_error for pod in pods):
            continue
        fields = {**CACHE_FIELDS, RESOURCES_OF_POD: stage.path}
        invalid = explain_invalid(observed.apply_error, fields, stage.resources, cache.pod_settings)
        if invalid and not any(worker.created or worker.ended for worker in workers):
            raise SpecError(f"{cache.identity}: pods made of this spec are invalid: {invalid}; correct the spec")


def _pause_left_s(worker: Worker, observed: ObservedBuild) -> float:
    ended_s = seconds_since(worker.end_time, observed.now)
    if ended_s is None:
        return 0.0
    return pause_s(worker.errors + worker.infrastructure_failures) - ended_s
