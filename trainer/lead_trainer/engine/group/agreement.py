"""Work that rank 0 does for all: its result, or its error, becomes everybody's.

Without this, an error of rank 0 would reach the others as a lost peer, and the group would end in several exit codes.
"""

import builtins
from collections.abc import Callable
from typing import Any

from lead_protocol.store import object_store
from lead_protocol.store.object_store import StoreError, StoreUnavailable
from lead_trainer import errors
from lead_trainer.engine.group.ddp import Group
from lead_trainer.errors import TrainerError

AT_WORK = {"at_work": True}


def done_by_first(group: Group, work: Callable[[], Any]) -> Any:
    """Runs `work` on rank 0 and returns its JSON result on every rank; every rank raises what `work` raises.

    OSErrors are passed on as well: a resume writes to the disk.
    """
    if not group.world.is_first:
        outcome = group.from_first(None)
        while outcome == AT_WORK:
            outcome = group.from_first(None)
        if "error" in outcome:
            raise _error_named(outcome["error"])(outcome["message"])
        return outcome["result"]
    try:
        result = work()
    except (TrainerError, StoreError, OSError) as error:
        group.from_first({"error": type(error).__name__, "message": str(error)})
        raise
    group.from_first({"result": result})
    return result


def report_work(group: Group) -> None:
    """Lets the ranks that wait in `done_by_first` wait on; called by its work, which may take longer than they wait."""
    group.from_first(AT_WORK)


def _error_named(name: str) -> type[Exception]:
    found = getattr(errors, name, None) or getattr(object_store, name, None) or getattr(builtins, name, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else StoreUnavailable
