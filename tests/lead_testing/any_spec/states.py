"""Whole specs: the simplest one of its kind, with one change or with two to four that do not meet."""

import copy
import functools
import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from lead_operator.resources.crd_defaults import read_schema
from lead_testing.any_spec.changes import Change, Schema, changes_of, put
from lead_testing.manifests import a_dataset_cache, a_training_run

RUN: Final = "TrainingRun"
CACHE: Final = "DatasetCache"
KINDS_IN_TURN = (RUN, RUN, CACHE)
MOST_CHANGES = 4
MOST_PODS = 8  # of one object that the operator is to act on; larger ones are only shown to the API server
_A, _B = {"name": "a"}, {"name": "b"}
_ABOVE_ITSELF = [_A | {"initFrom": {"stage": "b"}}, _B]
# Specs whose every field is right and that break a rule about several.
BROKEN_RULES: dict[str, tuple[Change, ...]] = {
    RUN: (
        Change(("stages",), [_A, _A], "two stages of one name"),
        Change(("stages",), _ABOVE_ITSELF, "begins with a later stage"),
        Change(("stages",), [_A, _B | {"initFrom": {"stage": "a", "uri": "s3://b/k"}}], "two beginnings"),
        Change(("stages",), [_A | {"seeds": [1, 1]}], "one seed twice"),
        Change(("datasets",), [{"cacheRef": {"name": "town"}}, {"cacheRef": {"name": "town"}}], "one cache twice"),
        Change(("checkpoint",), {"everyEpochs": 0, "everySteps": 0}, "never a checkpoint"),
        Change(("sessionCache",), {"sharedClaimName": "team"}, "shared without a volume"),
        Change(("sessionCache",), {"sizeLimit": "0Gi"}, "no size"),
        Change(("logging",), {"wandb": {"project": "a", "mode": "Online"}}, "online without a key"),
        Change(("closedLoop",), {"image": "a", "command": ["a"], "stages": ["b"]}, "driving with a stage that is none"),
        Change(("podOverrides",), {"labels": {"lead.dev/stage": "a"}}, "a label of ours"),
        Change(("podOverrides",), {"annotations": {"app.kubernetes.io/name": "a"}}, "an annotation of Kubernetes"),
    ),
    CACHE: (
        Change(("source",), {"prefix": "a", "claimName": "a"}, "two sources"),
        Change(("source",), {"path": "a"}, "no source"),
        Change(("source",), {"prefix": "a", "path": "b"}, "a path without a volume"),
        Change(("collections",), ["a", "a"], "one collection twice"),
        Change(("build",), {"stages": [_A, _A]}, "two stages of a build of one name"),
        Change(("build",), {"stages": [_A | {"after": ["b"]}, _B | {"after": ["a"]}]}, "stages in a circle"),
        Change(("build",), {"stages": [{"name": "merge"}]}, "a stage that every build has"),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class State:
    """A spec of one kind; at most one of its changes is bad."""

    kind: str
    changes: tuple[Change, ...]

    @property
    def bad(self) -> str:
        """Tells why it must be refused; empty where it may be taken."""
        return next((change.bad for change in self.changes if change.bad), "")

    @property
    def blamed(self) -> tuple[Change, ...]:
        """Returns the changes of which a refusal must name one."""
        return tuple(change for change in self.changes if change.bad) or self.changes

    def manifest(self, name: str) -> dict[str, Any]:
        """Returns the resource under this name."""
        body = the_simplest(self.kind, name)
        for change in self.changes:
            put(body["spec"], spec_schema(self.kind), change)
        return body

    def __str__(self) -> str:
        return f"{self.kind}: {'; '.join(map(str, self.changes))}"


def the_simplest(kind: str, name: str) -> dict[str, Any]:
    """Returns a resource that nothing is wrong with."""
    made = a_training_run(name, "town", nodes=1) if kind == RUN else a_dataset_cache(name, f"datasets/{name}")
    return copy.deepcopy(made)


def states(seed: str) -> Iterator[State]:
    """Yields specs without end, none of them twice: every single change, between them more and more combinations."""
    of_kind = {kind: _of_kind(kind, random.Random(f"{kind} {seed}")) for kind in set(KINDS_IN_TURN)}
    seen = set()
    for kind in itertools.cycle(KINDS_IN_TURN):
        state = next(each for each in of_kind[kind] if _text(each) not in seen)
        seen.add(_text(state))
        yield state


def _text(state: State) -> str:
    return json.dumps([state.kind, state.manifest("any")["spec"]], sort_keys=True)


def _of_kind(kind: str, rng: random.Random) -> Iterator[State]:
    alone = [*all_changes(kind), *BROKEN_RULES[kind]]
    rng.shuffle(alone)
    for change in itertools.chain(alone, itertools.repeat(None)):
        if change is not None:
            yield State(kind, (change,))
        yield State(kind, combine(kind, rng, wrong=rng.random() < 0.5))


def combine(kind: str, rng: random.Random, *, wrong: bool) -> tuple[Change, ...]:
    """Returns two to four changes that do not meet, exactly one of them bad, or none."""
    known = all_changes(kind)
    fine = [change for change in known if not change.bad]
    bad = [*(change for change in known if change.bad), *BROKEN_RULES[kind]]
    found = [rng.choice(bad)] if wrong else []
    wanted = rng.randint(2, MOST_CHANGES)
    while len(found) < wanted:
        change = rng.choice(fine)
        if not any(change.meets(other) for other in found):
            found.append(change)
    rng.shuffle(found)
    return tuple(found)


@functools.cache
def all_changes(kind: str) -> tuple[Change, ...]:
    """Returns every change of one field of a kind."""
    return tuple(changes_of(spec_schema(kind)))


def spec_schema(kind: str) -> Schema:
    """Returns the schema of a kind's spec."""
    found: Schema = read_schema(kind)["properties"]["spec"]
    return found


def pods_asked(body: dict[str, Any]) -> int:
    """Returns how many pods a resource may have at a time."""
    spec = body["spec"]
    if body["kind"] == CACHE:
        build = spec.get("build", {})
        of_stages = sum(int(stage.get("workers", 1)) for stage in build.get("stages", []))
        return max(int(build.get("parallelism", 1)), of_stages)
    instances = sum(len(stage.get("seeds", [0])) for stage in spec.get("stages", [_A]))
    return int(spec.get("nodes", 1)) * min(instances, int(spec.get("parallelism", 1)))
