"""What can end a trainer process, each class with its one exit code.

    TrainerError
    ├── BadConfig          the user must change the manifest or the command line
    │   └── NoSuchRecipe
    ├── BadData            the dataset, cache or a file of it is not what was promised
    ├── NoValidCheckpoint  manifests exist but none is valid
    ├── Fenced             a higher attempt exists; this process must stop writing
    ├── LostPeer           another rank went away
    ├── StuckLoader        a sample does not come: its thread is blocked, or its worker process died
    └── StopRequested      SIGTERM came and a checkpoint is committed

Storage errors are `lead_protocol.store.object_store.StoreError` and keep their own classes.
"""

import re

from lead_protocol.exit_codes import ExitClass, ExitCode, classify_exit_code
from lead_protocol.store.object_store import StoreDenied, StoreError

_FAILURES = [code for code in range(256) if classify_exit_code(code) in (ExitClass.USER_ERROR, ExitClass.PROGRAM_ERROR)]


class TrainerError(Exception):
    """An end of this process with a known exit code; the message is a sentence for the user."""

    exit_code: int = ExitCode.PROGRAM_ERROR  # another class may have its own: failurePolicy.fatalExitCodes


class BadConfig(TrainerError):
    """The configuration cannot be used; the message names the key, what was found and what was expected."""

    exit_code = ExitCode.BAD_CONFIG


class NoSuchRecipe(BadConfig):
    """No installed package offers the recipe."""

    exit_code = ExitCode.NO_SUCH_RECIPE


class BadData(TrainerError):
    """The data is not what was promised; the message names the file or object."""

    exit_code = ExitCode.BAD_DATA


class NoValidCheckpoint(TrainerError):
    """Checkpoints were committed, but none of them is valid."""

    exit_code = ExitCode.NO_VALID_CHECKPOINT


class Fenced(TrainerError):
    """A higher attempt of this stage instance exists."""

    exit_code = ExitCode.FENCED


class LostPeer(TrainerError):
    """Another rank of the group went away."""

    exit_code = ExitCode.LOST_PEER


class StuckLoader(TrainerError):
    """A sample makes no progress; the message names it and the place where its thread is."""


class StopRequested(TrainerError):
    """The process was asked to stop and has committed what it trained, if anything."""

    exit_code = ExitCode.STOPPED


def missing_extra(module: str, extra: str = "trainer") -> str:
    """Returns what to install where a module is missing that only some commands need."""
    return f"{module} is not installed: pip install 'lead-k8s[{extra}]'"


def exit_code_of(error: BaseException) -> int:
    """Returns the exit code in which `error` ends the process.

    A recipe's `sys.exit` keeps its code, unless it is one that means success, or that another attempt can go on.
    """
    if isinstance(error, TrainerError):
        return error.exit_code
    if isinstance(error, StoreDenied):
        return ExitCode.STORE_DENIED
    if isinstance(error, StoreError):
        return ExitCode.STORE_UNAVAILABLE
    if isinstance(error, SystemExit) and isinstance(error.code, int) and error.code in _FAILURES:
        return error.code
    return ExitCode.PROGRAM_ERROR


def short_checksums(text: str) -> str:
    """Returns a sentence with the first 12 characters of each SHA-256: what a pod leaves for its status has a limit."""
    return re.sub(r"\b([0-9a-f]{12})[0-9a-f]{52}\b", r"\1…", text)
