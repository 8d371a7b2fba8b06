"""When to drive with a run's weights, and what came of it. Pure; asked at every pass, also after the run's end.

    due, or asked for ──> Driving ──> Succeeded
                             │  ^
                             v  │ once, after a pause
                          Retrying ──> Failed            Stopped: by a suspension; it is driven again afterwards

One attempt at a time drives with the newest checkpoint of `closedLoop.stages`; what else was due by then is skipped.
An attempt is raised in status before its pod is made. Nothing here is seen by the decisions about training: pods that
the API server refuses are failed attempts, and a run is Succeeded whether or not one drives. One that drives then goes
on to its end, and the last weights of a run that succeeded are driven after it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lead_operator import names
from lead_operator.decisions.conditions import Finding
from lead_operator.decisions.formatting import format_time, parse_time, seconds_since, shorten
from lead_operator.decisions.observed import ObservedDrive, ObservedPod, ObservedRun
from lead_operator.decisions.plan import PodToDelete, once_each, remove_ended, retire
from lead_operator.decisions.policy_check import NOT_ALLOWED, closed_loop_violations, explain
from lead_operator.decisions.training_run.drive_failure import (
    END_WITHIN_S,
    MAX_TEXT,
    drive_failure,
    start_left_s,
    why_it_waits,
)
from lead_operator.decisions.training_run.driven_results import (
    DRIVEN,
    REGRESSION,
    Comparison,
    compare,
    judge,
    whose,
    with_results,
)
from lead_operator.errors import SpecError
from lead_operator.names import Condition, RunPhase
from lead_operator.objects.closed_loop_pod import Target, build_closed_loop_pod
from lead_operator.resources.closed_loop import ClosedLoop
from lead_operator.resources.closed_loop_status import (
    DRIVING,
    FAILED,
    RETRYING,
    STOPPED,
    SUCCEEDED,
    ClosedLoopStatus,
    DrivenInstance,
    DriveStatus,
)
from lead_operator.resources.status_format import JsonObject
from lead_operator.resources.training_run import TrainingRun
from lead_operator.resources.training_run_status import InstanceStatus
from lead_operator.settings import Settings

TRIES = 2  # of one evaluation
PAUSE_S = 20.0  # before the second
SOON_S = 2.0

Instance = tuple[str, int]


@dataclass(frozen=True)
class ClosedLoopStep:
    """What the closed loop adds to a pass."""

    status: ClosedLoopStatus | None = None
    finding: Finding | None = None
    tries: tuple[JsonObject, ...] = ()
    deletes: tuple[PodToDelete, ...] = ()
    claim: bool = False  # an attempt was raised: status is written before its pod is made
    wake_s: float | None = None
    goes_on: bool = False  # a pod drives, or will


def decide_closed_loop(
    run: TrainingRun, observed: ObservedRun, settings: Settings, stages: tuple[InstanceStatus, ...], phase: str
) -> ClosedLoopStep:
    """Returns the next step; `stages` and `phase` are those of the run's status as it is about to read."""
    wanted = run.closed_loop
    if wanted is None:
        return ClosedLoopStep(finding=_not_configured(run), deletes=_stop(run, observed, observed.drivers))
    try:
        return _Loop(run, wanted, observed, settings, _driven_stages(wanted, stages), phase).step()
    except SpecError as error:  # a checkpoint that lies elsewhere than the profile now is
        return ClosedLoopStep(observed.status.closed_loop, Finding(Condition.CLOSED_LOOP, False, FAILED, str(error)))


def reads_results(run: TrainingRun, observed: ObservedRun) -> bool:
    """Returns whether the results in the bucket matter to a run that has ended."""
    held = observed.status.closed_loop
    if run.closed_loop is None:
        return False
    if held is None or held.drive is None:
        stages, phase = _driven_stages(run.closed_loop, observed.status.stages), observed.status.phase
        return _target(run, run.closed_loop, ClosedLoopStatus(), stages, phase) is not None
    lives = any(pod.attempt == held.drive.attempt and not pod.terminal for pod in observed.drivers)
    return held.drive.phase == DRIVING and not lives


def _not_configured(run: TrainingRun) -> Finding | None:
    if not run.drive_request:
        return None
    text = (
        f"annotation {names.Annotation.CLOSED_LOOP} asks to drive, but the run has no spec.closedLoop; add one, with "
        "everyEpochs 0 to drive by annotation alone"
    )
    return Finding(Condition.CLOSED_LOOP, False, "NotConfigured", text)


def _stop(run: TrainingRun, observed: ObservedRun, pods: tuple[ObservedPod, ...]) -> tuple[PodToDelete, ...]:
    return retire(pods, now=observed.now, node_loss_s=run.failure_policy.node_loss_s)


def _driven_stages(wanted: ClosedLoop, stages: tuple[InstanceStatus, ...]) -> tuple[InstanceStatus, ...]:
    return tuple(entry for entry in stages if entry.name in wanted.stages)


def _target(
    run: TrainingRun, wanted: ClosedLoop, status: ClosedLoopStatus, stages: tuple[InstanceStatus, ...], phase: str
) -> Target | None:
    """Returns what to drive with next: the newest checkpoint where one is asked for, else the newest that is due."""
    if run.drive_request and run.drive_request != status.requested:
        return _newest([entry for entry in stages if entry.checkpoint and entry.checkpoint.uri], run.drive_request)
    return None if phase == RunPhase.FAILED else _newest(_due(wanted, status, stages), "")


def _due(
    wanted: ClosedLoop, status: ClosedLoopStatus, stages: tuple[InstanceStatus, ...]
) -> list[InstanceStatus]:  # fmt: skip
    """Returns the stage instances whose newest checkpoint is to be driven."""
    if not wanted.every_epochs:
        return []
    driven = {(entry.stage, entry.seed): entry.epoch for entry in status.driven}
    found = [entry for entry in stages if entry.checkpoint is not None and entry.checkpoint.uri]
    return [entry for entry in found if _is_due(entry, driven.get(entry.key, 0), wanted.every_epochs)]


def _is_due(entry: InstanceStatus, driven: int, every_epochs: int) -> bool:
    epoch = _epoch(entry)
    last = entry.phase == RunPhase.SUCCEEDED
    return epoch > driven and (last or epoch // every_epochs > driven // every_epochs)


def _epoch(entry: InstanceStatus) -> int:
    return (entry.checkpoint.epoch if entry.checkpoint else None) or 0


def _newest(entries: list[InstanceStatus], requested: str) -> Target | None:
    def age(numbered: tuple[int, InstanceStatus]) -> tuple[float, int]:
        saved = parse_time(numbered[1].checkpoint.saved_at) if numbered[1].checkpoint else None
        return (saved.timestamp() if saved else 0.0, numbered[0])

    if not entries:
        return None
    _, entry = max(enumerate(entries), key=age)
    assert entry.checkpoint is not None
    return Target(
        entry.name, entry.seed, _epoch(entry), entry.checkpoint.step or 0, entry.checkpoint.uri, requested
    )  # fmt: skip


@dataclass(frozen=True)
class _Loop:
    run: TrainingRun
    wanted: ClosedLoop
    observed: ObservedRun
    settings: Settings
    stages: tuple[InstanceStatus, ...]
    phase: str

    def step(self) -> ClosedLoopStep:
        held = self.observed.status.closed_loop
        if held is None and not self.observed.drives_read:
            return ClosedLoopStep(finding=self._recorded())  # it may have been erased: the bucket knows what was driven
        status = held if held is not None else self._rebuilt()
        compared = compare(self._results(status, erased=held is None), self.wanted.metric)
        drive = self._advanced(status.drive, compared)
        status = _settled(replace(status, drive=drive))
        status = with_results(status, compared, self.wanted, self.settings.storage_profiles.get(self._profile))
        return self._begun(status, compared)

    # --- what is known ------------------------------------------------------------------------------------------------

    @property
    def _profile(self) -> str:
        return self.run.storage_profile

    def _rebuilt(self) -> ClosedLoopStatus:
        """Returns what pods and bucket know of a status that was erased, or never was."""
        results, pods = self.observed.drives, self.observed.drivers
        driven: dict[Instance, int] = {}
        for result in results:
            key = (result.stage, result.seed)
            driven[key] = max(driven.get(key, 0), result.epoch)
        newest = max(results, key=lambda result: result.attempt, default=None)
        pod = max(pods, key=lambda pod: pod.attempt, default=None)
        asked = next((result.requested for result in reversed(results) if result.requested), "")
        status = ClosedLoopStatus(driven=_as_entries(driven), requested=asked)
        if pod is not None and (newest is None or pod.attempt >= newest.attempt):
            began = format_time(pod.created_at) if pod.created_at else None
            drive = DriveStatus(
                attempt=pod.attempt, stage=pod.stage, seed=pod.seed, epoch=pod.epoch, phase=DRIVING, tries=1,
                created=True, start_time=began,
            )  # fmt: skip
            return replace(status, drive=drive)
        if newest is None:
            return status
        drive = DriveStatus(
            attempt=newest.attempt, stage=newest.stage, seed=newest.seed, epoch=newest.epoch, phase=SUCCEEDED, tries=1,
            requested=newest.requested, created=True,
        )  # fmt: skip
        return replace(status, drive=drive)

    def _results(self, status: ClosedLoopStatus, *, erased: bool) -> list[ObservedDrive]:
        started = status.drive.attempt if status.drive else 0
        return [drive for drive in self.observed.drives if erased or drive.attempt <= started]

    def _pod_of(self, drive: DriveStatus) -> ObservedPod | None:
        return next((pod for pod in self.observed.drivers if pod.attempt == drive.attempt), None)

    # --- an attempt that drives ---------------------------------------------------------------------------------------

    def _advanced(self, drive: DriveStatus | None, compared: Comparison | None) -> DriveStatus | None:
        """Returns the newest attempt as it stands now."""
        if drive is not None and drive.phase == RETRYING and drive.stage not in self.wanted.stages:
            return replace(drive, phase=FAILED)  # it was taken out of closedLoop.stages meanwhile
        if drive is None or drive.phase != DRIVING:
            return drive
        pod, now = self._pod_of(drive), format_time(self.observed.now)
        drive = replace(drive, created=drive.created or pod is not None)
        if compared is not None and compared.newest.attempt == drive.attempt and (pod is None or pod.terminal):
            return replace(drive, phase=SUCCEEDED, end_time=now, message="")
        if self.run.suspend:
            return replace(drive, phase=STOPPED, end_time=now)
        failure = self._failure(drive, pod)
        if not failure:
            return drive
        phase = RETRYING if drive.tries < TRIES else FAILED
        return replace(drive, phase=phase, end_time=now, message=shorten(failure, MAX_TEXT))

    def _failure(self, drive: DriveStatus, pod: ObservedPod | None) -> str:
        if pod is not None:
            return drive_failure(
                pod, self.observed.now, timeout_s=self.wanted.timeout_s,
                node_loss_s=self.run.failure_policy.node_loss_s, results_read=self.observed.drives_read,
            )  # fmt: skip
        name = names.closed_loop_pod_name(self.run.identity.name, drive.attempt)
        if drive.created:  # its result may be there all the same
            return f"pod {name} was deleted by somebody or with its node" if self.observed.drives_read else ""
        if name in self.observed.refused:
            return f"the API server refuses its pod: {self.observed.refused[name]}"
        late = (seconds_since(drive.start_time, self.observed.now) or 0.0) >= END_WITHIN_S
        return f"pod {name} could not be created" if late else ""

    # --- the next one -------------------------------------------------------------------------------------------------

    def _begun(self, status: ClosedLoopStatus, compared: Comparison | None) -> ClosedLoopStep:
        """Returns the step with the pod that is missing, and with the next attempt where its time has come."""
        drive = status.drive or DriveStatus()
        mine = self._pod_of(drive) if drive.phase == DRIVING else None
        others = tuple(pod for pod in self.observed.drivers if mine is None or pod.uid != mine.uid)
        deletes = once_each(*_stop(self.run, self.observed, others), *self._outlived(drive, others))
        step = ClosedLoopStep(status, self._finding(status, compared), deletes=deletes)
        if drive.phase == DRIVING:
            return self._going_on(step, drive, mine)
        target = self._next(status)
        if target is None or self.run.suspend:
            return step
        if violations := closed_loop_violations(self.run, self.settings):
            text = explain(self.run.identity, violations)
            return replace(step, finding=Finding(Condition.CLOSED_LOOP, False, NOT_ALLOWED, text))
        waits = any(not pod.terminal for pod in others) or self.observed.store_error or self.observed.profile_error
        pause_s = PAUSE_S - abs(seconds_since(drive.end_time, self.observed.now) or 0.0)
        if drive.phase == RETRYING and pause_s > 0:
            return replace(step, wake_s=pause_s, goes_on=True)
        if waits:
            return replace(step, wake_s=SOON_S, goes_on=True)
        return self._started(step, status, drive, target)

    def _next(self, status: ClosedLoopStatus) -> Target | None:
        drive = status.drive
        if drive is None or drive.phase != RETRYING:
            return _target(self.run, self.wanted, status, self.stages, self.phase)
        return self._same(drive)

    def _started(
        self, step: ClosedLoopStep, status: ClosedLoopStatus, before: DriveStatus, target: Target
    ) -> ClosedLoopStep:
        known = [pod.attempt for pod in self.observed.drivers] + [before.attempt]
        drive = DriveStatus(
            attempt=max(known) + 1,
            stage=target.stage,
            seed=target.seed,
            epoch=target.epoch,
            phase=DRIVING,
            tries=before.tries + 1 if before.phase == RETRYING else 1,
            requested=target.requested,
            start_time=format_time(self.observed.now),
        )
        text = f"{whose(target.stage, target.seed, target.epoch)} is driven (attempt {drive.attempt})"
        finding = Finding(Condition.CLOSED_LOOP, None, DRIVING, text)
        due = _due(self.wanted, status, self.stages) if not target.requested else []
        others = {entry.key: _epoch(entry) for entry in due if entry.key != (target.stage, target.seed)}
        status = _up_to(status, others)  # they are skipped, and never queued
        begun = replace(step, status=replace(status, drive=drive), finding=finding, claim=True)
        return self._going_on(begun, drive, None, target)

    def _going_on(
        self, step: ClosedLoopStep, drive: DriveStatus, pod: ObservedPod | None, target: Target | None = None
    ) -> ClosedLoopStep:
        if pod is not None:
            left_s = start_left_s(pod, self.observed.now, self.wanted.timeout_s)
            return replace(step, wake_s=max(SOON_S, SOON_S if pod.terminal else left_s), goes_on=True)
        profile = self.settings.storage_profiles.get(self._profile)
        target = target or self._same(drive)
        if drive.created or profile is None or target is None:
            return replace(step, wake_s=SOON_S, goes_on=True)
        made = build_closed_loop_pod(
            self.run, self.wanted, target, attempt=drive.attempt, profile=profile, settings=self.settings
        )
        assert step.status is not None
        status = replace(step.status, drive=replace(drive, epoch=target.epoch))
        return replace(step, status=status, tries=(made,), wake_s=SOON_S, goes_on=True)

    def _same(self, drive: DriveStatus) -> Target | None:
        """Returns what an attempt drives with that has no pod yet: the second try, or one whose operator died."""
        entries = [entry for entry in self.stages if entry.key == (drive.stage, drive.seed) and entry.checkpoint]
        return _newest(entries, drive.requested)

    def _outlived(self, drive: DriveStatus, pods: tuple[ObservedPod, ...]) -> tuple[PodToDelete, ...]:
        """Returns the deletions of ended pods: the newest one is kept for its logs."""
        if self.run.clean_pod_policy == "None":
            return ()
        keep = 0 if self.run.clean_pod_policy == "All" and self.phase in (RunPhase.SUCCEEDED, RunPhase.FAILED) else 1
        return remove_ended(pod for pod in pods if pod.attempt <= drive.attempt - keep)

    # --- what people read ---------------------------------------------------------------------------------------------

    def _finding(self, status: ClosedLoopStatus, compared: Comparison | None) -> Finding | None:
        drive = status.drive
        if drive is None:
            text = f"no weights of {' or '.join(f'stage {name}' for name in self.wanted.stages)} were driven yet"
            return Finding(Condition.CLOSED_LOOP, None, "NotDriven", text)
        about = whose(drive.stage, drive.seed, drive.epoch)
        if drive.phase == DRIVING:
            pod = self._pod_of(drive)
            if pod is not None and pod.waiting_reason:
                return Finding(Condition.CLOSED_LOOP, None, pod.waiting_reason[:64], f"{about}: {why_it_waits(pod)}")
            return Finding(Condition.CLOSED_LOOP, None, DRIVING, f"{about} is driven (attempt {drive.attempt})")
        if drive.phase == RETRYING:
            return Finding(Condition.CLOSED_LOOP, None, RETRYING, f"{about}: {drive.message}; it is tried once more")
        if drive.phase == STOPPED:
            text = f"{about} was not driven to its end, because spec.suspend is true; it is driven again afterwards"
            return Finding(Condition.CLOSED_LOOP, None, STOPPED, text)
        if drive.phase == FAILED:
            text = (
                f"{about} failed {drive.tries} times, training is not affected: {drive.message}; the next due weights "
                f"are driven again, and these by another value of the annotation {names.Annotation.CLOSED_LOOP}"
            )
            return Finding(Condition.CLOSED_LOOP, False, FAILED, text)
        if compared is not None:
            return judge(compared, self.wanted)
        return self._recorded() or Finding(Condition.CLOSED_LOOP, True, DRIVEN, about)

    def _recorded(self) -> Finding | None:
        """Returns the condition as it was: the results are not read in this pass."""
        recorded = self.observed.status.condition(Condition.CLOSED_LOOP)
        if recorded is None or recorded.reason not in (DRIVEN, REGRESSION):
            return None
        return Finding(Condition.CLOSED_LOOP, recorded.status == "True", recorded.reason, recorded.message)


def _settled(status: ClosedLoopStatus) -> ClosedLoopStatus:
    """Returns the status with what an attempt settles that is over: neither is driven again."""
    drive = status.drive
    if drive is None or drive.phase not in (SUCCEEDED, FAILED):
        return status
    settled = _up_to(status, {(drive.stage, drive.seed or 0): drive.epoch})
    return replace(settled, requested=drive.requested or status.requested)


def _up_to(status: ClosedLoopStatus, epochs: Mapping[Instance, int]) -> ClosedLoopStatus:
    driven = {(entry.stage, entry.seed): entry.epoch for entry in status.driven}
    for key, epoch in epochs.items():
        driven[key] = max(driven.get(key, 0), epoch)
    return replace(status, driven=_as_entries(driven))


def _as_entries(driven: Mapping[Instance, int]) -> tuple[DrivenInstance, ...]:
    return tuple(DrivenInstance(stage=stage, seed=seed, epoch=epoch) for (stage, seed), epoch in driven.items())
