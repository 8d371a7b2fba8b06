"""Whether the caches that a run references can be trained on. Pure."""

from dataclasses import dataclass

from lead_operator.decisions.conditions import Finding
from lead_operator.decisions.observed import ObservedCache, ObservedRun
from lead_operator.names import Condition
from lead_operator.resources.training_run import TrainingRun
from lead_protocol.job import DatasetSource


@dataclass(frozen=True)
class DatasetCheck:
    """What a look at the referenced caches came to."""

    finding: Finding
    sources: dict[str, DatasetSource]  # by name; complete exactly when the finding holds
    building: bool = False  # only a build is missing
    hopeless: bool = False  # the run can never train on them


def check_datasets(run: TrainingRun, observed: ObservedRun) -> DatasetCheck:
    """Returns the caches to train on: those the run was started with, else those the caches hold now."""
    pinned = _pinned(observed)
    caches = {c.name: c for c in observed.caches}
    sources: dict[str, DatasetSource] = {}
    for name in run.datasets:
        if name in pinned:
            sources[name] = pinned[name]
            continue
        cache = caches.get(name) or ObservedCache(name=name, found=False)
        if problem := _problem(run, cache):
            return problem
        sources[name] = DatasetSource(name=name, digest=cache.digest, manifest_sha256=cache.manifest_sha256)
    listed = ", ".join(f"{name} ({source.digest[:12]})" for name, source in sources.items())
    return DatasetCheck(Finding(Condition.DATASET_READY, True, "CacheReady", f"trains on {listed}"), sources)


def _problem(run: TrainingRun, cache: ObservedCache) -> DatasetCheck | None:
    where = f"DatasetCache {run.identity.namespace}/{cache.name}"
    if not cache.found:
        near = f"; did you mean {cache.near}?" if cache.near else ";"
        text = f"{where} does not exist{near} create it, or recreate the run with another datasets[].cacheRef.name"
        return _not_ready("CacheNotFound", text)
    if cache.recipe and cache.recipe != run.recipe:
        text = (
            f"{where} is built for recipe {cache.recipe}, but spec.recipe is {run.recipe}; "
            "create a run that references a cache of its own recipe"
        )
        return _not_ready("RecipeMismatch", text, hopeless=True)
    if cache.storage_profile and cache.storage_profile != run.storage_profile:
        text = (
            f"{where} lies in storage profile {cache.storage_profile}, but spec.storageProfile is "
            f"{run.storage_profile}; create a run with the cache's profile"
        )
        return _not_ready("ProfileMismatch", text, hopeless=True)
    if cache.failed:
        return _not_ready("CacheFailed", f"{where} is Failed: {cache.message}; the run then goes on by itself")
    if not cache.ready or not cache.digest:
        return _not_ready("CacheBuilding", f"{where} is being built: {cache.message or 'not Ready yet'}", building=True)
    return None


def _not_ready(reason: str, message: str, *, building: bool = False, hopeless: bool = False) -> DatasetCheck:
    return DatasetCheck(Finding(Condition.DATASET_READY, False, reason, message), {}, building, hopeless)


def _pinned(observed: ObservedRun) -> dict[str, DatasetSource]:
    """The caches that the run was started with: by the operator's record, until there is one by its status."""
    if observed.started is not None and observed.started.datasets:
        return {source.name: source for source in observed.started.datasets}
    return {
        entry.name: DatasetSource(name=entry.name, digest=entry.digest, manifest_sha256=entry.manifest_sha256)
        for entry in observed.status.datasets
        if entry.name and entry.digest
    }
