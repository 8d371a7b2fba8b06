"""Fencing: one create-only object per attempt decides which process group may write.

The operator raises the attempt number; the group that creates `attempt/<n>.json` owns it. A process that finds a higher
number, or its own number taken by another, must not write any more.
"""

import json

from lead_protocol.object_keys import InstanceKeys
from lead_protocol.store.object_store import ObjectStore
from lead_trainer.errors import Fenced


def start_attempt(store: ObjectStore, keys: InstanceKeys, attempt: int, owner: str, *, run: str = "") -> None:
    """Takes the attempt for `owner`, a name unique to this process; raises Fenced when it is taken or outdated.

    `run`: the run's name, which keys do not hold; `report.event_mirror` shows it.
    """
    claim = {"attempt": attempt, "owner": owner, "run": run}
    if not store.create(keys.attempt(attempt), json.dumps(claim).encode()):
        raise Fenced(
            f"attempt {attempt} of {keys.prefix} is already owned by another process; "
            "the operator starts the next attempt under a new number"
        )
    refuse_if_fenced(store, keys, attempt)


def refuse_if_fenced(store: ObjectStore, keys: InstanceKeys, attempt: int) -> None:
    """Raises Fenced when a higher attempt exists."""
    newest = newest_attempt(store, keys)
    if newest > attempt:
        raise Fenced(
            f"attempt {newest} of {keys.prefix} has taken over from attempt {attempt}, which must stop writing"
        )


def newest_attempt(store: ObjectStore, keys: InstanceKeys) -> int:
    """Returns the highest claimed attempt, 0 when there is none."""
    stems = [info.key.rsplit("/", 1)[-1].removesuffix(".json") for info in store.list(keys.attempts_prefix)]
    return max((int(stem) for stem in stems if stem.isdigit()), default=0)
