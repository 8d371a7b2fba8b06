"""Chains of changes that one object takes one after another, each with what must come of it."""

import copy
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from lead_operator.errors import SpecError
from lead_operator.resources.crd_defaults import fill_defaults
from lead_testing.any_spec.changes import Change, put
from lead_testing.any_spec.states import CACHE, MOST_PODS, RUN, all_changes, pods_asked, spec_schema, the_simplest

STEPS = 5
EDIT: Final = "edit"  # of fields that may change: the object becomes what a new one of this spec is
WRONG: Final = "wrong"  # refused by the schema, and nothing moves
FIXED: Final = "fixed"  # of a field that may not change: refused with the remedy, and nothing moves
REMEDY = "create a new"
KINDS_OF_STEPS = (EDIT, EDIT, EDIT, WRONG, FIXED)
FREE = {
    RUN: {"suspend", "failurePolicy", "activeDeadlineSeconds", "pendingDeadlineSeconds", "ttlSecondsAfterFinished",
          "cleanPodPolicy", "closedLoop"},
    CACHE: {"source", "collections", "config", "build", "expectDigest", "retain"},
}  # fmt: skip
# A run that a deadline has ended stays ended, so these are only made longer. How a cache is built is of no account once
# it is there, so what could spoil a build belongs to a new object alone.
_LONG = 600
_BUILDS_ONLY = ("nodeSelector", "tolerations", "resources", "stages", "claimName", "path")


@dataclass(frozen=True)
class Step:
    """One change of a chain; `spec` is what is asked for with it."""

    what: str
    change: Change
    spec: dict[str, Any]


@dataclass(frozen=True)
class Chain:
    """A first spec and the steps from it; a refused step leaves the spec before it."""

    kind: str
    name: str
    first: dict[str, Any]
    steps: tuple[Step, ...]


def chains(seed: str) -> Iterator[Chain]:
    """Yields chains without end, of runs and caches in turn."""
    rng = random.Random(f"chains {seed}")
    for number, kind in zip(itertools.count(), itertools.cycle((RUN, CACHE))):
        yield _chain(kind, f"chain-{number}", rng)


def _chain(kind: str, name: str, rng: random.Random) -> Chain:
    first = the_simplest(kind, name)["spec"]
    steps: list[Step] = []
    held = first
    for what in rng.sample(KINDS_OF_STEPS, STEPS):
        steps.append(_step(kind, what, held, rng))
        held = steps[-1].spec if what == EDIT else held
    return Chain(kind, name, first, tuple(steps))


def _step(kind: str, what: str, held: dict[str, Any], rng: random.Random) -> Step:
    fitting = [change for change in all_changes(kind) if _kind_of_step(kind, change) == what]
    while True:
        change, spec = rng.choice(fitting), copy.deepcopy(held)
        put(spec, spec_schema(kind), change)
        if what == WRONG or (_differ(kind, held, spec) and pods_asked({"kind": kind, "spec": spec}) <= MOST_PODS):
            return Step(what, change, spec)


def _kind_of_step(kind: str, change: Change) -> str:
    """Returns what a change is good for in a chain; empty where it is left out."""
    if change.bad:
        return WRONG
    if change.path[0] not in FREE[kind]:
        return FIXED
    too_short = str(change.path[-1]).endswith("Seconds") and change.value < _LONG
    return "" if too_short or set(change.path) & set(_BUILDS_ONLY) else EDIT


def _differ(kind: str, one: dict[str, Any], other: dict[str, Any]) -> bool:
    try:
        filled = [fill_defaults({"kind": kind, "metadata": {}, "spec": spec})["spec"] for spec in (one, other)]
    except SpecError:  # what a schema's defaults cannot tell, the API server will
        return True
    return bool(filled[0] != filled[1])
