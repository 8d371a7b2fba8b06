"""Which plans each goal asks for, from what an undisturbed trial of every workload showed: all of them, or a sample.

R1 kills     the operator dies after every single write of a story, and after many in a row
R2 patterns  Sieve's three: die after write k, never hear of event k, come back to a world of some writes ago
R3 calls     each kind of call × {lost answer, 409, 429, 500, timeout, slow}
R4 watches   410, ERROR, silence, duplicate and reordered events, and an API server that answers 503 for a while
"""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice, zip_longest

from lead_operator.kube.client import CALL_TIMEOUT_S
from lead_testing.kube_faults.plan import Fault, FaultKind, Plan
from lead_testing.kube_faults.trial import Outcome
from lead_testing.operator_process import CONSTANTS, PATIENT


@dataclass(frozen=True)
class Lengths:
    """How long that lasts which lasts a while, in seconds."""

    stale: float
    timeout: float  # then something between gives up and breaks the connection
    slow: float
    outage: float


Learned = dict[str, Outcome]  # workload -> its undisturbed trial
Goal = Callable[[Learned, Lengths], Iterator[list[Plan]]]  # one list a group; a sample takes from every group

SHORT = Lengths(stale=3.0, timeout=3.0, slow=1.0, outage=5.0)  # a ring has no more time
REAL = Lengths(stale=12.0, timeout=CALL_TIMEOUT_S + 5, slow=30.0, outage=60.0)  # the operator itself gives up first
AS_SHIPPED = {  # how soon a fault heals is no figure under deadlines that a trial has shortened
    "LEAD_RESYNC_SECONDS": "60", "LEAD_RELIST_SECONDS": "600", "LEAD_PROGRESS_SECONDS": "10",
    CONSTANTS: json.dumps(PATIENT),
}  # fmt: skip
_WRITE_FAULTS: tuple[FaultKind, ...] = (
    "lost-answer", "refused-connection", "conflict", "too-many", "error", "timeout", "slow",
)  # fmt: skip
_READ_FAULTS: tuple[FaultKind, ...] = ("refused-connection", "too-many", "error", "timeout", "slow")
_TRIED_AGAIN = ("error", "refused-connection", "too-many")


def kills(learned: Learned, _: Lengths = SHORT) -> Iterator[list[Plan]]:
    """R1: once in a row after every write; then alone after each."""
    for name, outcome in learned.items():
        # Twice as many: several writes are under way at a time, and one life ends only once.
        yield [Plan(name, (Fault("kill", 1, times=2 * len(outcome.journal.writes())),))]
    for name, outcome in learned.items():
        yield [Plan(name, (Fault("kill", k),)) for k in range(1, len(outcome.journal.writes()) + 1)]


def patterns(learned: Learned, lengths: Lengths) -> Iterator[list[Plan]]:
    """R2: each workload × each of Sieve's patterns."""
    for name, outcome in learned.items():
        writes = range(1, len(outcome.journal.writes()) + 1)
        yield [Plan(name, (Fault("kill", k),)) for k in writes]
        yield [Plan(name, (Fault("hide", k),)) for k in range(1, len(outcome.journal.events) + 1)]
        stale_s = lengths.stale
        yield [Plan(name, (Fault("stale", k, seconds=stale_s, back=b),)) for k in writes for b in (1, 3, k) if b <= k]


def calls(learned: Learned, lengths: Lengths) -> Iterator[list[Plan]]:
    """R3: each kind of call of each workload × each fault; once, and until the operator's own tries are used up."""
    seconds = {"timeout": lengths.timeout, "slow": lengths.slow}
    for name, outcome in learned.items():
        for site, count in sorted(outcome.journal.sites().items()):
            faults = _READ_FAULTS if site.startswith(("list", "get")) else _WRITE_FAULTS
            yield [
                Plan(name, (Fault(kind, k, site, times=times, seconds=seconds.get(kind, 0.0)),))
                for kind in faults
                for k in range(1, count + 1)
                for times in ((1, 4) if kind in _TRIED_AGAIN else (1,))
            ]


def watches(learned: Learned, lengths: Lengths) -> Iterator[list[Plan]]:
    """R4: each workload × each fault of a watch, and an outage from each write on."""
    kinds: tuple[FaultKind, ...] = ("gone", "watch-error", "stall", "duplicate", "reorder")
    for name, outcome in learned.items():
        for kind in kinds:
            yield [Plan(name, (Fault(kind, k),)) for k in range(1, len(outcome.journal.events) + 1)]
        writes = range(1, len(outcome.journal.writes()) + 1)
        yield [Plan(name, (Fault("outage", k, seconds=lengths.outage),)) for k in writes]


GOALS: dict[str, Goal] = {"R1": kills, "R2": patterns, "R3": calls, "R4": watches}


def choose(goal: str, learned: Learned, count: int, seed: int, lengths: Lengths = SHORT) -> list[Plan]:
    """Returns `count` plans of a goal (0: all), drawn from every group in turn; the same seed draws the same plans."""
    rng = random.Random(f"{goal} {seed}")
    groups = [group for group in GOALS[goal](learned, lengths) if group]
    for group in groups:
        rng.shuffle(group)
    if goal != "R1":
        rng.shuffle(groups)
    in_turn = (plan for row in zip_longest(*groups) for plan in row if plan is not None)
    return list(islice(in_turn, count or None))


def as_shipped(plans: list[Plan]) -> list[Plan]:
    """Returns the plans for an operator that heals no faster than the one users have."""
    return [replace(plan, settings=AS_SHIPPED | plan.settings) for plan in plans]


def join(plans: list[Plan], most: int) -> list[Plan]:
    """Returns the same faults in fewer trials: up to `most` of one story go into one plan, whose end is the same."""
    stories: dict[str, list[Fault]] = {}
    for plan in plans:
        stories.setdefault(plan.workload, []).extend(plan.faults)
    return [
        Plan(workload, tuple(faults[first : first + most]))
        for workload, faults in stories.items()
        for first in range(0, len(faults), most)
    ]
