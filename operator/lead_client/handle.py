"""What a run and a cache have in common, in a cluster or on this machine: a name, a status, and waiting for its end."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import ClassVar, Generic, TypeVar

from lead_client.errors import ConditionError, WaitTimeout
from lead_client.objects.dataset_cache_status import DatasetCacheStatus
from lead_client.objects.training_run_status import Condition, TrainingRunStatus
from lead_client.progress import ProgressView, progress_view

Status = TypeVar("Status", TrainingRunStatus, DatasetCacheStatus)


class Handle(ABC, Generic[Status]):
    """One submitted object; every call reads it again, so a handle is never stale."""

    kind: ClassVar[str]
    ended: ClassVar[tuple[str, ...]]  # phases
    failed: ClassVar[type[ConditionError]]

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def status(self) -> Status:
        """Returns the status as it is now; raises NotFound once the object is deleted."""

    @abstractmethod
    def changes(self, timeout: float | None = None) -> Iterator[Status]:
        """Yields the status now and after every change, until the object has ended or `timeout` seconds are over.

        An API server that does not answer is waited for; without `timeout`, for as long as it takes.
        """

    @abstractmethod
    def delete(self) -> None:
        """Deletes the object; what it has written to the store stays."""

    def wait(self, timeout: float | None = None) -> Status:
        """Waits for the end and returns the status; raises RunFailed or CacheFailed, WaitTimeout, NotFound.

        `timeout`: in seconds; None waits for as long as it takes.
        """
        return self._until_ended(timeout, lambda status: None)

    def watch(self, timeout: float | None = None) -> Status:
        """Waits as `wait` does, and shows progress: a bar in a terminal and in a notebook, lines elsewhere."""
        view: ProgressView = progress_view(f"{self.kind} {self.name}")
        try:
            return self._until_ended(timeout, view.show)
        finally:
            view.close()

    def _until_ended(self, timeout: float | None, show: Callable[[Status], None]) -> Status:
        deadline = None if timeout is None else time.monotonic() + timeout
        last: Status | None = None
        for status in self.changes(timeout):
            last = status
            show(status)
            if status.phase in self.ended:
                if status.phase == "Failed":
                    condition = _condition(status, "Failed") or explained_by(status)
                    raise self.failed(self._sentence(status, condition), condition)
                return status
        assert deadline is not None, "changes() ends by itself only at its deadline"
        condition = explained_by(last) if last is not None else None
        found = f"it is {last.phase}" if last is not None and last.phase else "it has no status yet"
        because = f": {condition.message}" if condition is not None and condition.message else ""
        raise WaitTimeout(f"{self.kind} {self.name} has not ended within {timeout:g} s; {found}{because}", condition)

    def _sentence(self, status: Status, condition: Condition | None) -> str:
        message = condition.message if condition is not None else None
        return f"{self.kind} {self.name}: {message or status.reason or 'it has failed'}"

    def __repr__(self) -> str:
        """Returns kind and name."""
        return f"<{self.kind} {self.name}>"


def explained_by(status: TrainingRunStatus | DatasetCacheStatus) -> Condition | None:
    """Returns the condition that the status' reason was taken from, None where none has it."""
    found = [each for each in status.conditions or [] if status.reason and each.reason == status.reason]
    return Condition.model_validate(found[0].model_dump()) if found else None


def _condition(status: TrainingRunStatus | DatasetCacheStatus, kind: str) -> Condition | None:
    found = [each for each in status.conditions or [] if each.type == kind and each.status == "True"]
    return Condition.model_validate(found[0].model_dump()) if found else None
