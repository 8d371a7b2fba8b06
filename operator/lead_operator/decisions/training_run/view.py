"""A view of a TrainingRun: the input of the plan and of the status. Pure."""

import hashlib
import json
from dataclasses import dataclass, replace
from datetime import datetime

from lead_operator.decisions.conditions import Finding
from lead_operator.decisions.formatting import format_time, parse_time
from lead_operator.decisions.observed import ObservedCache, ObservedPod, ObservedRun
from lead_operator.decisions.policy_check import explain, run_violations
from lead_operator.decisions.training_run.progress import Progress, read_progress
from lead_operator.decisions.training_run.restarts import NO_CHECKPOINT, Restarts, read_restarts
from lead_operator.decisions.training_run.state import InstanceState, Step, choose_positions, read_instance_states
from lead_operator.names import Condition, RunPhase
from lead_operator.objects.training_pod import instance_keys
from lead_operator.resources.recipe_config import config_sha256
from lead_operator.resources.training_run import TrainingRun
from lead_operator.resources.training_run_status import AttemptFailure, CheckpointStatus
from lead_operator.settings import Settings, StorageProfile
from lead_protocol.job import DatasetSource

SUSPEND_REQUESTED = "SuspendRequested"


@dataclass(frozen=True)
class DatasetCheck:
    """The state of the referenced caches."""

    finding: Finding
    sources: dict[str, DatasetSource]  # by name; complete exactly when the finding holds
    building: bool = False  # only a build is missing
    hopeless: bool = False  # the run can never train on them


@dataclass(frozen=True)
class InstanceView:
    """What is known of one stage instance."""

    progress: Progress
    checkpoint: CheckpointStatus | None


@dataclass(frozen=True)
class RunView:
    """Everything known before the decision, seen from one of the stage instances that are trained now."""

    run: TrainingRun
    observed: ObservedRun
    settings: Settings
    profile: StorageProfile | None
    states: tuple[InstanceState, ...]
    positions: tuple[int, ...]  # of the instances to train now; the last one when all are done
    position: int  # of the instance that this view is about
    reported: dict[int, InstanceView]  # of each of `positions`
    restarts: Restarts
    last_failure: AttemptFailure | None
    datasets: DatasetCheck
    config_hash: str  # of the spec as it is now
    start_time: str | None

    @property
    def current(self) -> InstanceState:
        """The instance that this view is about."""
        return self.states[self.position]

    @property
    def progress(self) -> Progress:
        """How far the current instance is."""
        return self.reported[self.position].progress

    @property
    def checkpoint(self) -> CheckpointStatus | None:
        """The newest checkpoint of the current instance, or None."""
        return self.reported[self.position].checkpoint

    @property
    def beyond_policy(self) -> str:
        """What the spec requests beyond the administrator's lists, as text; empty if nothing."""
        return explain(self.run.identity, run_violations(self.run, self.settings))

    @property
    def refused_by_policy(self) -> str:
        """The same of a run that has not begun: one that has goes on, whatever list was tightened meanwhile."""
        return "" if any(state.attempt for state in self.states) else self.beyond_policy

    @property
    def held_nodes(self) -> int:
        """Pods of the newest attempt of this instance, else of the last one begun, else those that the spec wants."""
        begun = [state for state in (*self.states, self.current) if state.attempt > 0 and not state.nodes_unknown]
        return begun[-1].nodes if begun else self.run.nodes

    @property
    def asks_for_other_nodes(self) -> bool:
        """Whether spec.nodes has changed since the newest attempt began."""
        return not self.all_done and self.held_nodes != self.run.nodes

    @property
    def nodes_beyond_policy(self) -> str:
        """Why spec.nodes was raised above the administrator's limits, as text; empty where it was not."""
        if self.run.nodes <= self.held_nodes:
            return ""
        found = [each for each in run_violations(self.run, self.settings) if each.field.startswith("spec.nodes")]
        return explain(self.run.identity, found)

    def after(self, step: Step, position: int) -> "RunView":
        """Returns the view from another instance, with what a step has changed."""
        return replace(
            self,
            position=position,
            states=step.states,
            restarts=step.restarts,
            last_failure=step.last_failure,
            start_time=step.start_time,
        )

    def step(self, phase: RunPhase, reason: str) -> Step:
        """Returns the step that changes only the run's phase and reason."""
        return Step(
            phase=phase,
            reason=reason[:64],
            states=self.states,
            restarts=self.restarts,
            last_failure=self.last_failure,
            start_time=self.start_time,
        )

    def states_with(self, state: InstanceState) -> tuple[InstanceState, ...]:
        """Returns the states, with another one of the current instance."""
        return tuple(state if i == self.position else s for i, s in enumerate(self.states))

    @property
    def states_ended(self) -> tuple[InstanceState, ...]:
        """The states with every attempt that lives now ended."""
        return tuple(replace(s, ended=s.attempt) if i in self.positions else s for i, s in enumerate(self.states))

    @property
    def unreadable(self) -> bool:
        """Whether the bucket could not be read this time: what is known of it may be old."""
        return bool(self.observed.store_error or self.observed.profile_error)

    @property
    def all_done(self) -> bool:
        """Whether every instance has succeeded."""
        return all(state.succeeded for state in self.states)

    @property
    def live_pods(self) -> tuple[ObservedPod, ...]:
        """Pods of any instance and attempt that may still write."""
        return tuple(p for state in self.states for p in state.pods if not p.terminal)

    @property
    def blocking_pods(self) -> tuple[ObservedPod, ...]:
        """Live pods but those of the other instances that are trained now."""
        others = {p.uid for i in self.positions if i != self.position for p in self.states[i].pods}
        return tuple(p for p in self.live_pods if p.uid not in others)

    def awaited(self, pods: tuple[ObservedPod, ...]) -> tuple[ObservedPod, ...]:
        """Live pods whose end is waited for; one past its grace period is fenced by the next attempt."""
        return tuple(p for p in pods if not p.is_past_deadline(self.observed.now))

    @property
    def pod_that_stays(self) -> ObservedPod | None:
        """The first of the pods past their grace period."""
        return next((p for p in self.live_pods if p.is_past_deadline(self.observed.now)), None)

    @property
    def started_hash(self) -> str:
        """The configuration that the run was started with: by the operator's record, else by the status of its pods."""
        recorded = self.observed.started.config_hash if self.observed.started is not None else ""
        begun = any(state.attempt for state in self.states)
        reported = self.observed.status.config_hash if begun or self.unreadable else ""
        return str(recorded or reported or self.config_hash)

    @property
    def checkpoint_step(self) -> int:
        """Step of the newest checkpoint of the current instance."""
        unread = self.current.backoff.at_step if self.current.bucket is None else NO_CHECKPOINT
        return unread if self.checkpoint is None or self.checkpoint.step is None else self.checkpoint.step


def read_run(run: TrainingRun, observed: ObservedRun, settings: Settings) -> RunView:
    """Returns the observation in order."""
    states = read_instance_states(run, observed)
    positions = choose_positions(run, states)
    profile = settings.storage_profiles.get(run.storage_profile)
    return RunView(
        run=run,
        observed=observed,
        settings=settings,
        profile=profile,
        states=states,
        positions=positions,
        position=positions[0],
        reported={i: observe_instance(run, states[i], profile, observed.now) for i in positions},
        restarts=read_restarts(
            observed.status.restarts,
            observed.restart_record,
            (state.attempt for state in states),
            by_records=observed.by_records,
        ),
        last_failure=observed.status.last_failure,
        datasets=check_datasets(run, observed),
        config_hash=hash_config(run),
        start_time=_start_time(run, observed, states),
    )


def observe_instance(
    run: TrainingRun, state: InstanceState, profile: StorageProfile | None, now: datetime
) -> InstanceView:
    """Returns what is known of one stage instance, trained now or not."""
    return InstanceView(read_progress(state, state.known_progress, now), _newest_checkpoint(run, state, profile))


def hash_config(run: TrainingRun) -> str:
    """Returns a hash of what a person configured; CEL cannot see into `config`, so the operator compares this.

    The API server's equality of free-form objects misses a key that is renamed (as many keys before as after).
    """
    stages = [[s.name, s.epochs, list(s.seeds), s.init_from, config_sha256(s.config)] for s in run.stages]
    text = json.dumps(
        [run.recipe, run.preset, config_sha256(run.config), stages], sort_keys=True, separators=(",", ":")
    )
    return hashlib.sha256(text.encode()).hexdigest()


def _start_time(run: TrainingRun, observed: ObservedRun, states: tuple[InstanceState, ...]) -> str | None:
    """When the run started, or went on after its last suspension.

    After an erased status: when the first of the pods did that work now, else the last. Others may be from before a
    suspension, whose time does not count.
    """
    suspended = observed.status.condition(Condition.SUSPENDED)
    was = suspended is not None and (suspended.status == "True" or suspended.reason == SUSPEND_REQUESTED)
    if was and not run.suspend:
        return format_time(observed.now) if any(s.attempt for s in states) else None
    if observed.status.start_time:
        return observed.status.start_time
    created = [p.created_at for p in observed.pods if p.created_at is not None]
    working = [p.created_at for p in observed.pods if p.created_at is not None and not (p.terminal or p.deleting)]
    return format_time(min(working) if working else max(created)) if created else None


def _newest_checkpoint(
    run: TrainingRun, state: InstanceState, profile: StorageProfile | None
) -> CheckpointStatus | None:
    found = state.checkpoint
    if found is None:  # what was true stays true while the bucket is not read
        return state.known_checkpoint if state.bucket is None or state.lost_step else None
    keys = instance_keys(run, state.instance)
    # The prefix comes from a manifest that a pod wrote: only one below this instance's own keys is shown.
    prefix = found.prefix if found.prefix.startswith(keys.prefix) and ".." not in found.prefix else keys.prefix
    saved = parse_time(found.saved_at)
    return CheckpointStatus(
        uri=profile.uri(prefix) if profile else prefix,
        step=found.step,
        epoch=min(found.epoch, state.instance.stage.epochs),
        size_bytes=found.size_bytes,
        saved_at=format_time(saved) if saved is not None else None,
    )


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
