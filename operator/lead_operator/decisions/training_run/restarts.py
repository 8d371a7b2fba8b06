"""The two restart budgets of a run, and the ends without progress of each of its stage instances. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from lead_operator.decisions.failure_policy import CORRECT_AND_CREATE, SPEC_REASONS, Failure, pause_s
from lead_operator.decisions.formatting import plausible_time
from lead_operator.resources.training_run import FailurePolicy
from lead_operator.resources.training_run_status import RestartsStatus, RestartState
from lead_protocol.exit_codes import ExitClass
from lead_protocol.run_records import RestartRecord

NO_CHECKPOINT = -1


@dataclass(frozen=True)
class Restarts:
    """How often the groups of a run were replaced, and why."""

    program: int = 0
    infrastructure: int = 0
    voluntary: int = 0

    @property
    def total(self) -> int:
        """All replacements together."""
        return self.program + self.infrastructure + self.voluntary

    def to_status(self) -> RestartsStatus:
        """Returns status.restarts."""
        return RestartsStatus(
            total=self.total,
            program=self.program,
            infrastructure=self.infrastructure,
            voluntary=self.voluntary,
        )


@dataclass(frozen=True)
class Backoff:
    """The newest ends of one stage instance in a row: what its pause and failurePolicy.noProgressLimit rest on."""

    at_step: int = NO_CHECKPOINT  # step of the checkpoint that the newest ends left off at
    errors: int = 0
    ends: int = 0
    failed_attempt: int = 0  # newest that ended by a failure
    failed_at: str | None = None
    reason: str = ""

    @property
    def pause_s(self) -> float:
        """The pause before the next attempt."""
        return pause_s(self.ends)

    def added_to(self, state: RestartState) -> RestartState:
        """Returns status.stages[].restartState with its part; as it is where nothing has failed yet."""
        if not self.failed_attempt:
            return state
        return replace(
            state,
            at_step=self.at_step,
            errors_at_step=self.errors,
            ends_at_step=self.ends,
            failed_attempt=self.failed_attempt,
            failed_at=self.failed_at,
            failed_reason=self.reason,
        )


@dataclass(frozen=True)
class RestartDecision:
    """What one failure comes to."""

    restarts: Restarts
    backoff: Backoff
    give_up: str = ""  # reason to end the run as Failed; empty: restart
    message: str = ""


def read_restarts(
    status: RestartsStatus | None, record: RestartRecord | None, attempts: Iterable[int], *, by_records: bool = False
) -> Restarts:
    """Returns the counters that a status holds; after an erased one, or `by_records`, those of the newest record.

    Where there is no record either, the instances' `attempts` are counted. They do not show why they ended, or whether
    a suspension ended them: they spend no budget.
    """
    if status is not None and not by_records:
        return Restarts(status.program, status.infrastructure, status.voluntary)
    if record is not None:
        return Restarts(record.program, record.infrastructure, record.voluntary)
    return Restarts(voluntary=sum(attempt - 1 for attempt in attempts if attempt > 0))


def read_backoff(state: RestartState | None) -> Backoff:
    """Returns the newest ends in a row that an instance's restart state holds."""
    if state is None:
        return Backoff()
    return Backoff(
        at_step=NO_CHECKPOINT if state.at_step is None else state.at_step,
        errors=state.errors_at_step or 0,
        ends=state.ends_at_step or 0,
        failed_attempt=state.failed_attempt or 0,
        failed_at=state.failed_at,
        reason=state.failed_reason,
    )


def recorded_backoff(record: RestartRecord | None, stage: str, seed: int) -> Backoff:
    """Returns the newest ends in a row that a record in the bucket holds of an instance."""
    entries = record.instances if record is not None else []
    entry = next((each for each in entries if (each.stage, each.seed) == (stage, seed)), None)
    if entry is None:
        return Backoff()
    return Backoff(
        entry.at_step, entry.errors, entry.ends, entry.failed_attempt, plausible_time(entry.failed_at), entry.reason
    )


def apply_restart_policy(
    restarts: Restarts, backoff: Backoff, failure: Failure, policy: FailurePolicy, checkpoint_step: int
) -> RestartDecision:
    """Returns the accounts after a failure of one instance, and whether the run gives up."""
    if failure.exit_class is ExitClass.USER_ERROR:
        message = failure.message + (CORRECT_AND_CREATE if failure.reason in SPEC_REASONS else "")
        return RestartDecision(restarts, backoff, failure.reason, message)
    grown = _grown(backoff, failure, checkpoint_step)
    if failure.exit_class is ExitClass.INFRASTRUCTURE:
        if restarts.infrastructure >= policy.max_infra_restarts:
            text = (
                f"restarted {restarts.infrastructure} times after infrastructure failures "
                "(failurePolicy.maxInfraRestarts)"
            )
            return RestartDecision(restarts, grown, "MaxInfraRestarts", _last(text, failure, checkpoint_step))
        return RestartDecision(replace(restarts, infrastructure=restarts.infrastructure + 1), grown)
    if failure.exit_class is not ExitClass.PROGRAM_ERROR:
        return RestartDecision(replace(restarts, voluntary=restarts.voluntary + 1), grown)
    if restarts.program >= policy.max_restarts:
        text = f"restarted {restarts.program} times after program errors (failurePolicy.maxRestarts)"
        return RestartDecision(restarts, grown, "MaxRestarts", _last(text, failure, checkpoint_step))
    if checkpoint_step != NO_CHECKPOINT and grown.errors >= policy.no_progress_limit:
        text = (
            f"failed {grown.errors} times in a row at the checkpoint of step {checkpoint_step} "
            "(failurePolicy.noProgressLimit)"
        )
        return RestartDecision(restarts, grown, "NoProgress", _last(text, failure, checkpoint_step))
    return RestartDecision(replace(restarts, program=restarts.program + 1), grown)


def _grown(backoff: Backoff, failure: Failure, checkpoint_step: int) -> Backoff:
    same = backoff.at_step == checkpoint_step
    error = 1 if failure.exit_class is ExitClass.PROGRAM_ERROR else 0
    return replace(
        backoff,
        at_step=checkpoint_step,
        errors=(backoff.errors if same else 0) + error,
        ends=(backoff.ends if same else 0) + 1,
    )


def _last(text: str, failure: Failure, checkpoint_step: int) -> str:
    remedy = f"; {failure.remedy}" if failure.remedy else ""
    stay = "; its checkpoints stay in the object store" if checkpoint_step != NO_CHECKPOINT else ""
    return f"{text}; the last was {failure.reason}: {failure.message}{remedy}{stay}"
