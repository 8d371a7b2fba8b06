"""The two restart budgets and the count of ends without progress. Pure."""

from dataclasses import dataclass, replace
from typing import Any

from lead_operator.decisions.failure_policy import Failure, pause_s
from lead_operator.resources.training_run import FailurePolicy
from lead_protocol.exit_codes import ExitClass

NO_CHECKPOINT = -1


@dataclass(frozen=True)
class Restarts:
    """How often the group was replaced, and why."""

    program: int = 0
    infrastructure: int = 0
    uncounted: int = 0
    at_step: int = NO_CHECKPOINT  # step of the checkpoint that the newest ends left off at
    errors_at_step: int = 0
    ends_at_step: int = 0

    @property
    def total(self) -> int:
        """All replacements together."""
        return self.program + self.infrastructure + self.uncounted

    @property
    def pause_s(self) -> float:
        """The pause before the next attempt."""
        return pause_s(self.ends_at_step)

    def to_status(self) -> dict[str, Any]:
        """Returns status.restarts."""
        return {
            "total": self.total,
            "program": self.program,
            "infrastructure": self.infrastructure,
            "uncounted": self.uncounted,
            "atStep": self.at_step,
            "errorsAtStep": self.errors_at_step,
            "endsAtStep": self.ends_at_step,
        }


@dataclass(frozen=True)
class Verdict:
    """What one failure comes to."""

    restarts: Restarts
    give_up: str = ""  # reason to end the run as Failed; empty: restart
    message: str = ""


def read_restarts(status: dict[str, Any]) -> Restarts:
    """Returns the accounts that a status holds."""
    entry = status.get("restarts") or {}
    return Restarts(
        program=int(entry.get("program") or 0),
        infrastructure=int(entry.get("infrastructure") or 0),
        uncounted=int(entry.get("uncounted") or 0),
        at_step=int(entry.get("atStep", NO_CHECKPOINT)),
        errors_at_step=int(entry.get("errorsAtStep") or 0),
        ends_at_step=int(entry.get("endsAtStep") or 0),
    )


def judge_failure(restarts: Restarts, failure: Failure, policy: FailurePolicy, checkpoint_step: int) -> Verdict:
    """Returns the accounts after a failure, and whether the run gives up."""
    if failure.exit_class is ExitClass.USER_ERROR:
        return Verdict(restarts, failure.reason, failure.message)
    counted = _at_checkpoint(restarts, failure, checkpoint_step)
    if failure.exit_class is ExitClass.INFRASTRUCTURE:
        if restarts.infrastructure >= policy.max_infra_restarts:
            text = f"restarted {restarts.infrastructure} times after disturbances (failurePolicy.maxInfraRestarts)"
            return Verdict(counted, "MaxInfraRestarts", _last(text, failure))
        return Verdict(replace(counted, infrastructure=restarts.infrastructure + 1))
    if failure.exit_class is not ExitClass.PROGRAM_ERROR:
        return Verdict(replace(counted, uncounted=restarts.uncounted + 1))
    if restarts.program >= policy.max_restarts:
        text = f"restarted {restarts.program} times after program errors (failurePolicy.maxRestarts)"
        return Verdict(counted, "MaxRestarts", _last(text, failure))
    if checkpoint_step != NO_CHECKPOINT and counted.errors_at_step >= policy.no_progress_limit:
        text = (
            f"failed {counted.errors_at_step} times in a row at the checkpoint of step {checkpoint_step} "
            "(failurePolicy.noProgressLimit)"
        )
        return Verdict(counted, "NoProgress", _last(text, failure))
    return Verdict(replace(counted, program=restarts.program + 1))


def _at_checkpoint(restarts: Restarts, failure: Failure, checkpoint_step: int) -> Restarts:
    same = restarts.at_step == checkpoint_step
    error = 1 if failure.exit_class is ExitClass.PROGRAM_ERROR else 0
    return replace(
        restarts,
        at_step=checkpoint_step,
        errors_at_step=(restarts.errors_at_step if same else 0) + error,
        ends_at_step=(restarts.ends_at_step if same else 0) + 1,
    )


def _last(text: str, failure: Failure) -> str:
    return f"{text}; the last was {failure.reason}: {failure.message}; its checkpoints stay in the object store"
