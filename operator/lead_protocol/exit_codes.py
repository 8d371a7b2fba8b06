"""The table of exit codes of a pod's main process, and how the operator treats them.

Written by `lead_trainer` (each error class ends in one of these), read by `lead_operator.decisions.failure_policy`.
Numbers follow BSD sysexits where one fits, because 2 and 64-78 are what shells and operators already know.
"""

from enum import IntEnum, StrEnum


class ExitCode(IntEnum):
    """What the main process of a pod reports; anything not listed is a program error."""

    DONE = 0
    PROGRAM_ERROR = 1  # an uncaught exception
    USAGE = 2  # wrong command line
    BAD_CONFIG = 64  # unknown key, wrong type, contradictory values
    BAD_DATA = 65  # dataset empty, truncated file, missing cache
    NO_VALID_CHECKPOINT = 66  # manifests exist but none is valid: never silently step 0
    NO_SUCH_RECIPE = 69
    STORE_DENIED = 77  # credentials refused: a person must act
    STOPPED = 75  # stopped on request after a committed checkpoint
    FENCED = 79  # a higher attempt exists: this process must not write any more
    STORE_UNAVAILABLE = 80  # the object store did not answer within the total deadline
    LOST_PEER = 81  # another rank went away; that rank's exit code is the cause
    STEP_TOO_LARGE = 82  # a step did not fit into memory; the next attempt takes smaller ones, which comes to an end


# A clock that the store rejects ends a pod in STORE_UNAVAILABLE too; the operator knows it by this part of its message.
SET_CLOCKS = "set this machine's clock and the store's right"


class ExitClass(StrEnum):
    """What an exit asks of the operator."""

    DONE = "Done"
    STOPPED = "Stopped"  # not counted
    USER_ERROR = "UserError"  # fail now, with the cause
    INFRASTRUCTURE = "Infrastructure"  # counts against maxInfraRestarts
    PROGRAM_ERROR = "ProgramError"  # counts against maxRestarts


def classify_exit_code(code: int) -> ExitClass:
    """Returns how the operator treats an exit code, after pod-level causes (eviction, OOM)."""
    if code == ExitCode.DONE:
        return ExitClass.DONE
    if code in (ExitCode.STOPPED, ExitCode.STEP_TOO_LARGE):
        return ExitClass.STOPPED
    if code in (ExitCode.FENCED, ExitCode.STORE_UNAVAILABLE, ExitCode.LOST_PEER):
        return ExitClass.INFRASTRUCTURE
    if code == ExitCode.USAGE or 64 <= code <= 78:
        return ExitClass.USER_ERROR
    return ExitClass.PROGRAM_ERROR
