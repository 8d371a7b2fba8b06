"""The whole status of a DatasetCache, from what was seen and what was decided. Pure; it holds no clock."""

from dataclasses import replace

from lead_operator.decisions.conditions import Finding, storage_available, update_conditions
from lead_operator.decisions.dataset_cache.build_speed import build_speed
from lead_operator.decisions.dataset_cache.display import eta_text, rate_text, with_display
from lead_operator.decisions.dataset_cache.stage_status import at_work, how_far, stage_entries
from lead_operator.decisions.dataset_cache.state import BuildState, answers, build_inputs
from lead_operator.decisions.failure_policy import SPEC_REASONS
from lead_operator.decisions.formatting import format_time
from lead_operator.decisions.observed import ObservedBuild
from lead_operator.decisions.policy_check import NOT_ALLOWED
from lead_operator.decisions.remedies import explain_refusal, explain_waiting
from lead_operator.names import CachePhase, Condition
from lead_operator.resources.dataset_cache import DatasetCache
from lead_operator.resources.dataset_cache_status import (
    BuildSpeed,
    BuildStageStatus,
    BuildStatus,
    DatasetCacheStatus,
    DoneOfTotal,
    RoutesStatus,
)
from lead_operator.resources.status_format import FailureStatus
from lead_operator.settings import Settings, StorageProfile
from lead_protocol.object_keys import CacheKeys

MAX_USERS = 64
MAX_REASONS = 64
SHOWN_PLACES = 3
MAX_PLACE = 120

NOT_ENDED = (Finding(Condition.FAILED, False, "NotFailed", "the build has not failed"),)


def build_cache_status(
    cache: DatasetCache,
    observed: ObservedBuild,
    settings: Settings,
    *,
    state: BuildState,
    phase: CachePhase,
    reason: str,
    message: str,
    last_failure: FailureStatus | None,
) -> DatasetCacheStatus:
    """Returns the status as it should read."""
    generation, now = cache.identity.generation, format_time(observed.now)
    previous = observed.status if answers(cache, observed.status) else DatasetCacheStatus()
    profile = settings.storage_profiles.get(cache.storage_profile)
    digest = _digest(observed, previous)
    done = sum(1 for w in state.workers if w.done)
    begun = any(w.attempt for w in state.workers)
    ended = phase in (CachePhase.READY, CachePhase.FAILED)
    stages = stage_entries(cache, state, observed, phase, last_failure)
    speed = None if ended else build_speed(observed, previous.build.speed if previous.build else None)
    progress = _how_far(observed, state, speed, stages)
    status = replace(
        _contents(observed, previous),
        observed_generation=generation,
        phase=phase.value,
        reason=reason[:64],
        digest=digest,
        uri=profile.uri(CacheKeys(cache.identity.namespace, digest).prefix) if profile and digest else "",
        used_by=observed.used_by[:MAX_USERS],
        stages=stages,
        build=BuildStatus(
            generation=state.generation,
            inputs=build_inputs(cache),
            rebuilds=state.rebuilds,
            pods=DoneOfTotal(done=done, total=len(state.workers)),
            workers=tuple(w.to_status() for w in state.workers),
            speed=speed,
        ),
        last_failure=last_failure,
        start_time=previous.start_time or (now if begun else None),
        completion_time=(previous.completion_time or now) if ended else None,
        conditions=update_conditions(
            observed.status.conditions,
            _findings(cache, observed, profile, state, phase, reason, message, progress),
            generation=generation,
            now=observed.now,
        ),
    )
    return with_display(status, tuple(entry.name for entry in at_work(stages)))


def is_urgent(previous: DatasetCacheStatus, status: DatasetCacheStatus) -> bool:
    """Returns whether a person waits for this change: not a mere shard more."""

    def shown(s: DatasetCacheStatus) -> list[object]:
        conditions = [(c.type, c.status, c.reason) for c in s.conditions]
        build = replace(s.build, speed=None) if s.build is not None else None
        return [s.phase, s.observed_generation, s.used_by, build, conditions]

    return shown(previous) != shown(status)


def _digest(observed: ObservedBuild, previous: DatasetCacheStatus) -> str:
    if observed.result_digest:
        return observed.result_digest
    reported = {report.record.digest for report in observed.reports if len(report.record.digest) == 64}
    return reported.pop() if len(reported) == 1 else previous.digest


def _contents(observed: ObservedBuild, previous: DatasetCacheStatus) -> DatasetCacheStatus:
    """Returns a status with what is known of the cache itself, and nothing else."""
    manifest, records = observed.manifest, observed.records
    if manifest is not None and manifest.digest == observed.result_digest:
        return DatasetCacheStatus(
            routes=RoutesStatus(kept=manifest.routes_kept, total=manifest.routes_total),
            route_reasons=dict(sorted(manifest.route_reasons.items())[:MAX_REASONS]),
            samples=manifest.samples,
            shards=DoneOfTotal(done=manifest.shards, total=manifest.shards),
            percent=100,
            manifest_sha256=manifest.sha256,
            size_bytes=manifest.size_bytes,
        )
    if not records:
        return DatasetCacheStatus(
            routes=previous.routes,
            route_reasons=previous.route_reasons,
            samples=previous.samples,
            shards=previous.shards,
            percent=previous.percent,
            manifest_sha256=previous.manifest_sha256,
            size_bytes=previous.size_bytes,
        )
    total = max(r.shards_total for r in records)
    done = min(total, sum(r.shards_done for r in records))
    return DatasetCacheStatus(
        routes=RoutesStatus(kept=max(r.routes_kept for r in records), total=max(r.routes_total for r in records)),
        samples=max(r.samples for r in records),
        shards=DoneOfTotal(done=done, total=total) if total else None,
        percent=100 * done // total if total else None,
        size_bytes=sum(r.size_bytes for r in records),
    )


def _findings(
    cache: DatasetCache,
    observed: ObservedBuild,
    profile: StorageProfile | None,
    state: BuildState,
    phase: CachePhase,
    reason: str,
    message: str,
    how_far: str,
) -> list[Finding]:
    refused = phase is CachePhase.FAILED and (reason in SPEC_REASONS or reason == "BadSpec")
    if profile is None:
        accepted = Finding(Condition.ACCEPTED, False, "UnknownStorageProfile", f"{cache.identity}: {message}")
    elif reason == NOT_ALLOWED and phase is CachePhase.PENDING:
        accepted = Finding(Condition.ACCEPTED, False, NOT_ALLOWED, message)
    elif refused:
        accepted = Finding(Condition.ACCEPTED, False, reason[:64], message)
    else:
        accepted = Finding(
            Condition.ACCEPTED, True, "Valid", "the spec is valid; its recipe keys are checked by the pods"
        )
    findings = [accepted, storage_available(observed.store_error, observed.profile_error)]
    if phase is CachePhase.READY:
        findings.append(Finding(Condition.READY, True, "Complete", message))
        findings += _source_drift(observed, cache.identity.generation)
    else:
        text = message or _why_not_ready(observed, state, how_far)
        findings.append(Finding(Condition.READY, False, reason[:64], text))
    if phase is CachePhase.FAILED:
        findings.append(Finding(Condition.FAILED, True, reason[:64], message))
    else:
        findings += NOT_ENDED
    return findings


def _source_drift(observed: ObservedBuild, generation: int) -> list[Finding]:
    manifest, source = observed.manifest, observed.source
    if manifest is None or source is None:
        return _drift_reported_before(observed, generation)
    if source.sha256 == manifest.source_sha256:
        text = f"the source is the one the cache was built from: {source.files} files"
        return [Finding(Condition.SOURCE_DRIFT, False, "Unchanged", text)]
    parts = ((source.added, "added"), (source.removed, "removed"), (source.replaced, "changed"))
    named = ", ".join(f"{len(places)} {verb} ({_first(places)})" for places, verb in parts if places)
    what = (
        f"the source has changed since the cache was built: {named}"
        if named
        else ("files were added to the source, removed from it or replaced since the cache was built")
    )
    earlier = _drift_reported_before(observed, generation)
    how_many = f"it has {source.files} files now"
    if not named and earlier and earlier[0].holds and f"; {how_many}" in earlier[0].message:
        # By an operator that could name what changed; this one has never seen the source as it was.
        what = earlier[0].message.partition(f"; {how_many}")[0]
    text = (
        f"{what}; {how_many}; runs go on with the cache as it is; to build with the new data, "
        "create another DatasetCache, or delete this one and create it again"
    )
    return [Finding(Condition.SOURCE_DRIFT, True, "SourceChanged", text)]


def _first(places: tuple[str, ...]) -> str:
    shown = [place if len(place) <= MAX_PLACE else f"…{place[-MAX_PLACE:]}" for place in places[:SHOWN_PLACES]]
    more = len(places) - len(shown)
    return ", ".join([*shown, f"+{more} more"] if more else shown)


def _drift_reported_before(observed: ObservedBuild, generation: int) -> list[Finding]:
    """What the last listing came to; an operator that has just started has not listed anything yet."""
    earlier = observed.status.condition(Condition.SOURCE_DRIFT)
    if earlier is None or earlier.observed_generation != generation:
        return []
    return [Finding(Condition.SOURCE_DRIFT, earlier.status == "True", earlier.reason, earlier.message)]


def _how_far(
    observed: ObservedBuild, state: BuildState, speed: BuildSpeed | None, stages: tuple[BuildStageStatus, ...]
) -> str:
    done = sum(1 for w in state.workers if w.done)
    earlier = how_far(stages) or [f"{done} of {len(state.workers)} build pods are done"]
    if total := max((r.shards_total for r in observed.records), default=0):
        earlier.append(f"{min(total, sum(r.shards_done for r in observed.records))} of {total} shards are complete")
    if speed is not None and speed.samples:
        earlier.append(f"{speed.samples} of {sum(r.share_samples for r in observed.records)} samples are packed")
    if speed is not None and speed.eta_seconds is not None:
        earlier.append(f"about {eta_text(speed)} are left at {rate_text(speed)}")
    return ", ".join(earlier)


def _why_not_ready(observed: ObservedBuild, state: BuildState, how_far: str) -> str:
    if observed.apply_error:
        return explain_refusal(observed.apply_error)
    pending = [w.pod for w in state.workers if w.active and w.pod is not None and w.pod.phase == "Pending"]
    if waiting := next((pod for pod in pending if pod.waiting_reason), None):
        return explain_waiting(waiting)
    if observed.store_error:
        begun = any(worker.attempt for worker in state.workers)
        meanwhile = f"{how_far}; what runs goes on, and cannot be read" if begun else "nothing is built"
        return f"{meanwhile} until the object store answers: {observed.store_error}; it is tried again"
    slow = pending[0].name if pending else ""
    return f"{how_far}; if that lasts, kubectl describe pod {slow} shows what it waits for" if slow else how_far
