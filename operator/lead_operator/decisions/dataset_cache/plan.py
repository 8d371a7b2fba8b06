"""The state machine of a DatasetCache: spec and observation to the next step. Pure; called at every pass.

    Pending ──> Building ──(manifest exists)──> Ready ──(what it is built from changes)──> Building
                   └──(mistake in spec or data, or too many errors)──> Failed ──(spec changes)──> Building

Every share of the work, or of a stage of it (`spec.build.stages`), is tried again on its own, under a new attempt
number that is claimed in status first; what is complete is not made twice. The cache is Ready when its manifest exists,
and for no other reason.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from lead_operator.decisions.conditions import Finding, update_conditions
from lead_operator.decisions.dataset_cache.build_start import start_pods
from lead_operator.decisions.dataset_cache.health import find_build_failure
from lead_operator.decisions.dataset_cache.rebuild import (
    begins_again_by_itself,
    how_it_begins_again,
    listed_every_s,
    source_has_changed,
    source_read_again_in_s,
    source_record,
)
from lead_operator.decisions.dataset_cache.state import (
    STORAGE_UNAVAILABLE,
    BuildState,
    CacheStep,
    Worker,
    answers,
    fail_build,
    read_build_state,
    retire_pods,
)
from lead_operator.decisions.dataset_cache.status import build_cache_status, is_urgent
from lead_operator.decisions.dataset_cache.verification import SOURCE_CHANGED, publish_request
from lead_operator.decisions.events import cache_events
from lead_operator.decisions.failure_policy import SPEC_REASONS, Failure, with_failure
from lead_operator.decisions.formatting import format_size, format_time
from lead_operator.decisions.observed import ObservedBuild, ObservedBuildFailure, ObservedPublication
from lead_operator.decisions.plan import SOON_S, Plan, RunRecord, once_each
from lead_operator.decisions.remedies import STORE_DENIED, correct_pods_access, unknown_profile
from lead_operator.errors import SpecError
from lead_operator.names import CachePhase, Condition
from lead_operator.resources.dataset_cache import DatasetCache
from lead_operator.resources.status_format import FailureStatus, status_json
from lead_operator.settings import Settings
from lead_protocol.exit_codes import ExitClass
from lead_protocol.object_keys import CacheKeys, ControlKeys
from lead_protocol.run_records import RunEnd

MANIFEST_WAIT_S = 15.0  # the bucket is read less often than the pods
MAX_REBUILDS = 4  # a source that changes under every reading is no source
MAX_INFRASTRUCTURE_FAILURES = 50  # of one share
REMOVAL_CHECK_S = 5.0  # a cache that is being deleted
_BUILD_AGAIN = "to rebuild, delete the DatasetCache and create it again"
_CORRECT_SPEC = "correct the spec: a changed one is built again by itself; more tries would fail alike"
_CORRECTIONS = {  # of mistakes, which no further try mends
    **dict.fromkeys(SPEC_REASONS, _CORRECT_SPEC),
    "NoSuchRecipe": (
        "spec.recipe is fixed: delete the DatasetCache, and create it again with a recipe that the trainer image has; "
        "more tries would fail alike"
    ),
}
_MORE_TRIES = f"correct the cause, then raise build.maxRetries, or {_BUILD_AGAIN.removeprefix('to build again, ')}"
_RETAIN_AFTER_ALL = "with spec.retain set to Retain the data stay and this DatasetCache goes"


def decide_dataset_cache(cache: DatasetCache, observed: ObservedBuild, settings: Settings) -> Plan:
    """Returns the next step of a DatasetCache; the same observation always comes to the same plan."""
    try:
        step = next_cache_step(cache, observed, settings)
    except SpecError as error:
        step = fail_build(read_build_state(cache, observed), None, observed, "BadSpec", str(error))
    step = _release(step, observed)
    status = build_cache_status(
        cache,
        observed,
        settings,
        state=step.state,
        phase=step.phase,
        reason=step.reason,
        message=step.message,
        last_failure=step.last_failure,
    )
    return Plan(
        status=status_json(status),
        records=_failure_records(cache, observed, step),
        claim_attempt=step.claim,
        publish=step.publish,
        deletes=step.deletes,
        creates=step.creates,
        events=cache_events(observed.status, status),
        requeue_after_s=step.requeue_after_s,
        urgent=is_urgent(observed.status, status),
        finalizer=_wanted_finalizer(cache),
    )


def _wanted_finalizer(cache: DatasetCache) -> bool | None:
    wanted = cache.retain == "Delete"
    return None if wanted == cache.has_finalizer else wanted


def decide_cache_removal(
    cache: DatasetCache, observed: ObservedBuild, users: Sequence[str], unseen: Sequence[str] = ()
) -> Plan:
    """Returns the step of a DatasetCache that is being deleted and takes its data with it: wait for those that use it.

    Without users, live pods and namespaces `unseen`, whose runs may use them, the data may be removed; the finalizer is
    removed by the caller when they are gone.
    """
    previous = observed.status
    if users:
        reason = "InUse"
        text = f"deleted, but its data are used by {', '.join(users[:5])}; they go when those have ended or are deleted"
    elif unseen:
        reason = "NamespaceUnseen"
        text = (
            f"deleted, but namespace {', '.join(unseen[:5])} is not seen, and its runs may use the data: they stay "
            f"until it is seen again, or is taken out of runs.namespaces of the chart's values; {_RETAIN_AFTER_ALL}"
        )
    elif observed.profile_error:
        reason = "UnknownStorageProfile"
        text = (
            f"deleted, but its data cannot be removed: {observed.profile_error}; ask the administrator to define it "
            f"again; {_RETAIN_AFTER_ALL}"
        )
    elif observed.store_error:
        reason = "RemovalFails"
        text = (
            f"deleted, but its data cannot be removed: {observed.store_error}; it is tried again; {_RETAIN_AFTER_ALL}"
        )
    else:
        reason, text = "RemovingData", "deleted; its data are being removed from the object store"
    finding = Finding(Condition.READY, False, reason, text)
    conditions = update_conditions(
        previous.conditions, [finding], generation=cache.identity.generation, now=observed.now
    )
    status = replace(previous, phase=CachePhase.DELETING.value, reason=reason, conditions=conditions)
    return Plan(
        status=status_json(status),
        deletes=retire_pods(observed.pods, observed),
        events=cache_events(previous, status),
        urgent=True,
        requeue_after_s=REMOVAL_CHECK_S,
    )


def next_cache_step(cache: DatasetCache, observed: ObservedBuild, settings: Settings) -> CacheStep:
    """Returns what to do next."""
    state = read_build_state(cache, observed)
    same_spec = answers(cache, observed.status)
    failure = observed.status.last_failure if same_spec else None
    if unknown := unknown_profile(cache.storage_profile, settings.storage_profiles):
        step = CacheStep(CachePhase.PENDING, "UnknownStorageProfile", unknown, state, failure)
        return replace(step, requeue_after_s=settings.resync_s)
    if observed.manifest is not None and observed.manifest.digest == observed.result_digest:
        return _ready_or_other_digest(cache, observed, state, failure)
    if observed.found_sha256:
        return _replaced(observed, settings, state, failure)
    if (failed := _known_failure(observed, state, same_spec)) is not None:
        every_s = listed_every_s(settings)
        if source_has_changed(cache, observed, failed, every_s):
            return _build(cache, observed, settings, state.begun_with_other_data(), failure)
        step = fail_build(state, failure, observed, failed.reason, failed.message)
        again_s = source_read_again_in_s(observed, failed, every_s)
        return replace(step, requeue_after_s=again_s if begins_again_by_itself(cache, failed.reason) else None)
    if observed.result_digest and not any(worker.attempt for worker in state.workers):  # the status was erased
        begun = CacheStep(CachePhase.BUILDING, "Publishing", "", state, failure)
        if (publishing := _publish(cache, begun, observed)) is not None:
            return publishing
    older = state.generation != cache.identity.generation
    was_ready = observed.status.holds(Condition.READY) and all(w.done for w in state.workers)
    if same_spec and (older or was_ready):
        if observed.store_error and observed.status.holds(Condition.READY):
            return CacheStep(CachePhase.READY, "Complete", "the cache is complete", state, failure)
        if observed.store_error:
            step = CacheStep(CachePhase.PENDING, STORAGE_UNAVAILABLE, "", state, failure)
            return replace(step, requeue_after_s=settings.progress_s)
        # The bucket was emptied: what was promised is not there any more.
        state = read_build_state(cache, observed, fresh=True) if older else state.restarted()
    return _build(cache, observed, settings, state, failure)


def _known_failure(observed: ObservedBuild, state: BuildState, same_spec: bool) -> ObservedBuildFailure | None:
    """Returns the failure of this build: as recorded, or as status reports it where no record can contradict that."""
    if observed.failure is not None and observed.failure.rebuilds == state.rebuilds:
        return observed.failure
    condition = observed.status.condition(Condition.FAILED) if same_spec else None
    if condition is None or condition.status != "True" or observed.failure_disproved:
        return None
    return ObservedBuildFailure(state.rebuilds, condition.reason, condition.message)


def _failure_records(cache: DatasetCache, observed: ObservedBuild, step: CacheStep) -> tuple[RunRecord, ...]:
    if step.phase is not CachePhase.FAILED:
        return ()
    source = source_record(cache, step.state.generation, observed, observed.failure)
    known = observed.failure is not None and observed.failure.rebuilds == step.state.rebuilds
    if known or observed.store_error:
        return source
    end = RunEnd(
        phase="Failed", reason=step.reason[:64], message=step.message[:2048], ended_at=format_time(observed.now)
    )  # fmt: skip
    keys = ControlKeys(cache.identity.namespace, cache.identity.uid)
    failed = keys.failed(step.state.generation, step.state.rebuilds)
    return (RunRecord(failed, end.model_dump_json().encode()), *source)


def _ready_or_other_digest(
    cache: DatasetCache, observed: ObservedBuild, state: BuildState, failure: FailureStatus | None
) -> CacheStep:
    if cache.expect_digest and observed.result_digest != cache.expect_digest:
        return _other_digest(cache, observed, state, failure)
    done = replace(state, workers=tuple(replace(w, done=True) for w in state.workers))
    step = CacheStep(CachePhase.READY, "Complete", "the cache is complete", done, failure)
    return replace(step, deletes=retire_pods(state.orphans, observed))


def _other_digest(
    cache: DatasetCache, observed: ObservedBuild, state: BuildState, failure: FailureStatus | None
) -> CacheStep:
    text = (
        f"the build came to digest {observed.result_digest}, but spec.expectDigest is {cache.expect_digest}; source, "
        "collections, config or the trainer image differ; correct them, or change or remove expectDigest"
    )
    return fail_build(state, failure, observed, "DigestMismatch", text)


def _build(
    cache: DatasetCache, observed: ObservedBuild, settings: Settings, state: BuildState, failure: FailureStatus | None
) -> CacheStep:
    step = CacheStep(CachePhase.BUILDING, "Building", "", state, failure, requeue_after_s=settings.progress_s)
    if any(not pod.is_past_deadline(observed.now) for pod in state.orphans):
        return replace(step, reason="WaitingForOldPods", deletes=retire_pods(state.orphans, observed))
    for worker in state.workers:
        found = find_build_failure(cache, worker, observed, settings)
        if found is not None:
            step = _account(cache, step, worker, found, observed, settings)
            if step.phase is CachePhase.FAILED:
                return step
        elif worker.active and worker.pod is not None and worker.pod.phase == "Succeeded":
            step = replace(step, state=step.state.with_worker(replace(worker, done=True)))
    if all(w.done for w in step.state.workers):
        return _publish(cache, step, observed) or _await_manifest(cache, step, observed)
    return start_pods(cache, observed, settings, step)


def _account(
    cache: DatasetCache, step: CacheStep, worker: Worker, failure: Failure, observed: ObservedBuild, settings: Settings
) -> CacheStep:
    now = format_time(observed.now)
    fields = with_failure(FailureStatus(), failure, failure.message, observed.now)
    is_error = failure.exit_class is ExitClass.PROGRAM_ERROR
    ended = replace(
        worker,
        ended=worker.attempt,
        end_time=now,
        errors=worker.errors + (1 if is_error else 0),
        infrastructure_failures=worker.infrastructure_failures + (0 if is_error else 1),
    )
    state = step.state.with_worker(ended)
    if failure.exit_class is ExitClass.USER_ERROR:
        return fail_build(
            state,
            fields,
            observed,
            failure.reason,
            f"{failure.message}; {_correction(cache, failure.reason, settings)}",
        )
    if ended.errors > cache.max_retries:
        text = f"{_share(worker)} failed {ended.errors} times (build.maxRetries); the last was {failure.reason}: "
        return fail_build(state, fields, observed, "MaxRetries", f"{text}{failure.message}; {_MORE_TRIES}")
    if ended.infrastructure_failures > MAX_INFRASTRUCTURE_FAILURES:
        text = (
            f"{_share(worker)} was ended {ended.infrastructure_failures} times by infrastructure failures; the last "
            f"was {failure.reason}: "
        )
        return fail_build(state, fields, observed, "MaxInfraFailures", f"{text}{failure.message}; {_BUILD_AGAIN}")
    return replace(step, state=state, last_failure=fields, claim=True)  # before its pod goes: that is no second failure


def _share(worker: Worker) -> str:
    return f"share {worker.index}" + (f" of stage {worker.stage}" if worker.stage else "")


def _correction(cache: DatasetCache, reason: str, settings: Settings) -> str:
    if reason == STORE_DENIED:
        profile = settings.storage_profiles.get(cache.storage_profile)
        return f"{correct_pods_access(profile, cache.identity.namespace, build=True)}; {_BUILD_AGAIN}"
    if reason != "BadData":
        return _CORRECTIONS.get(reason, _BUILD_AGAIN)
    return f"correct the data of spec.source, or the spec; {how_it_begins_again(cache)}; more tries would fail alike"


def _replaced(
    observed: ObservedBuild, settings: Settings, state: BuildState, failure: FailureStatus | None
) -> CacheStep:
    """The published manifest is another than the one that was verified: nobody trains on it any more."""
    text = (
        f"the manifest of cache {observed.result_digest[:12]} has SHA-256 {observed.found_sha256}, expected "
        f"{observed.published_sha256}: it was replaced after the cache was published, and no new run reads it; restore "
        "it, or remove the cache's objects to have it built again"
    )
    step = CacheStep(CachePhase.PENDING, "ManifestReplaced", text, state, failure)
    return replace(step, requeue_after_s=settings.resync_s)


def _publish(cache: DatasetCache, step: CacheStep, observed: ObservedBuild) -> CacheStep | None:
    """Has the staged cache published, and waits for that; None where nothing is staged."""
    digest = observed.result_digest
    if not digest or observed.store_error:
        return None
    if cache.expect_digest and digest != cache.expect_digest:
        return _other_digest(cache, observed, step.state, step.last_failure)
    request, found = publish_request(cache, step.state, digest), observed.publication
    if found is None or (found.digest, found.rebuilds) != (request.digest, request.rebuilds):
        found = ObservedPublication()
    if found.missing:
        return None
    if found.reason == SOURCE_CHANGED and step.state.rebuilds < MAX_REBUILDS:
        again = replace(step, state=step.state.restarted(), reason=SOURCE_CHANGED, message=found.refused)
        return replace(again, requeue_after_s=SOON_S)
    if found.damaged:
        damaged = replace(step, phase=CachePhase.PENDING, reason=found.reason, publish=request)
        text = _explain_damage(cache, observed, found.damaged)
        return replace(damaged, message=text, requeue_after_s=MANIFEST_WAIT_S)
    if found.refused:
        begins = how_it_begins_again(cache) if found.reason == SOURCE_CHANGED else _BUILD_AGAIN
        text = f"the staged cache is not published: {found.refused}; {begins}"
        return fail_build(step.state, step.last_failure, observed, found.reason, text)
    text = "the staged cache is checked before it is published"
    if found.objects_total:
        text = (
            f"{found.objects} of {found.objects_total} objects ({format_size(found.size_bytes)}) are verified and "
            "published"
        )
    text += f"; the store failed: {found.error}; it is tried again" if found.error else ""
    return replace(step, reason="Publishing", message=text, publish=request, requeue_after_s=SOON_S)


def _explain_damage(cache: DatasetCache, observed: ObservedBuild, damage: str) -> str:
    prefix = CacheKeys(cache.identity.namespace, observed.result_digest).prefix
    return (
        f"cache {observed.result_digest[:12]} was published before and is damaged: {damage}; restore them from a copy, "
        f"and this DatasetCache becomes Ready by itself; or remove everything below {prefix} in the object store, and "
        "it is built again by itself"
    )


def _await_manifest(cache: DatasetCache, step: CacheStep, observed: ObservedBuild) -> CacheStep:
    """All shares are done, but nothing is committed: the source changed while it was read, or it is too early."""
    ends = [p.finished_at for w in step.state.workers for p in w.pods if p.finished_at is not None]
    since_s = (observed.now - max(ends)) / timedelta(seconds=1) if ends else MANIFEST_WAIT_S
    if observed.store_error:
        return replace(step, reason=STORAGE_UNAVAILABLE)
    if since_s < MANIFEST_WAIT_S:
        return replace(step, reason="Finishing", requeue_after_s=SOON_S)
    if step.state.rebuilds >= MAX_REBUILDS:
        text = (
            f"the source changed while it was read, {step.state.rebuilds + 1} times in a row; "
            f"let it come to rest; {how_it_begins_again(cache)}"
        )
        return fail_build(step.state, step.last_failure, observed, "SourceChanges", text)
    return replace(step, state=step.state.restarted(), reason="SourceChanged", requeue_after_s=SOON_S)


def _release(step: CacheStep, observed: ObservedBuild) -> CacheStep:
    """Returns the step with the deletion of pods that only hold their nodes' resources; first their end is recorded."""
    building = step.phase not in (CachePhase.READY, CachePhase.FAILED)
    awaited = {w.pod.uid for w in step.state.workers if building and w.pod is not None and w.attempt > w.ended}
    released = retire_pods(tuple(p for p in observed.pods if p.kept_by_sidecar and p.uid not in awaited), observed)
    return replace(step, deletes=once_each(*step.deletes, *released), claim=step.claim or bool(released))
