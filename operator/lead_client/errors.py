"""What can go wrong in `lead_client`; the message is the sentence of the condition or of the API server.

ClientError
├── InvalidObject       names and types (found here), limits and rules (found by the API server)
├── NotFound            no object of that name, or it was deleted meanwhile
├── AlreadyExists       an object of that name exists
├── NotAllowed          this user's rights do not suffice, or a policy of the cluster rejects it
├── Unavailable         the API server does not answer
├── NotSupported        what only a cluster can do, or what a CRD does not have
├── NoCheckpoint        there is no checkpoint to fetch yet
├── CheckpointCorrupt   its bytes are not what its manifest names; nothing was written
├── StoreNotReachable   no way from here to the bucket
├── MissingExtra        a call needs a package that is not installed
└── ConditionError      carries `condition`: type, status, reason, message
    ├── RunFailed       the run has ended as Failed
    ├── CacheFailed     the build has ended as Failed
    └── WaitTimeout     the deadline of wait() or watch() is over
"""

from lead_client.objects.training_run_status import Condition


class ClientError(Exception):
    """The base of all; the message is a sentence for people."""


class InvalidObject(ClientError):
    """An object that cannot be submitted; nothing was created or changed."""


class NotFound(ClientError):
    """There is no such object, or it was deleted meanwhile."""


class AlreadyExists(ClientError):
    """An object of that name exists."""


class NotAllowed(ClientError):
    """The rights of this user, or a policy of the cluster, forbid it."""


class Unavailable(ClientError):
    """The API server does not answer, or answers with its own failure."""


class NotSupported(ClientError):
    """It is possible only in a cluster, or not at all; the message names what to do instead."""


class NoCheckpoint(ClientError):
    """No checkpoint, event file or weights yet."""


class CheckpointCorrupt(ClientError):
    """A file's bytes are not what the manifest names; nothing was written."""


class StoreNotReachable(ClientError):
    """The bucket cannot be reached from this machine; the message names what is missing."""


class MissingExtra(ClientError):
    """A package is missing that only this call needs."""


class ConditionError(ClientError):
    """How an object is; `condition` is what the message was taken from, None where no condition explains it."""

    def __init__(self, message: str, condition: Condition | None = None) -> None:
        super().__init__(message)
        self.condition = condition

    @property
    def reason(self) -> str:
        """The condition's reason, such as BadConfig; empty without a condition."""
        return (self.condition.reason or "") if self.condition is not None else ""


class RunFailed(ConditionError):
    """A TrainingRun has ended as Failed."""


class CacheFailed(ConditionError):
    """The build of a DatasetCache has ended as Failed."""


class WaitTimeout(ConditionError):
    """The deadline is over; `condition` is what the object waits for, if it reports one."""


def missing_extra(package: str, extra: str) -> MissingExtra:
    """Returns the error for a package that is not installed."""
    return MissingExtra(f"{package} is not installed: pip install 'lead-k8s[{extra}]'")
