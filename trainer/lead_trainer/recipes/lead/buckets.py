"""LEAD's bucket collections: which frames of which routes, in which order, drawn how often.

Read by the preparation. Rows keep LEAD's order (scenario folders sorted, then routes, then frames). A collection's
counters follow LEAD's, which count a kept route even when the skips leave none of its frames.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog

from lead_trainer.contract.raw_data import RouteVerdict, SampleKey, SourceTree
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.lead.ingest.route_tree import OPTIONAL_FOLDERS, RouteTree
from lead_trainer.recipes.lead.prepare_keys import PreparationKeys
from lead_trainer.recipes.lead.route_filter import (
    Reason,
    RouteResult,
    completed_but_failed,
    route_result,
    training_reason,
)
from lead_trainer.recipes.lead.sim2real_buckets import MINED, Rule, numbered
from lead_trainer.recipes.lead.targets.label_classes import SCENARIO_TYPES

log = structlog.get_logger(__name__)

STAGES = ("pretrain", "posttrain")
KEPT_UNKNOWN_SCENARIO = "kept_unknown_scenario"  # trained on, numbered like scenario NA


@dataclass(frozen=True)
class CollectionRule:
    """How a collection is filled."""

    posttrain: bool  # whose skips apply
    failed: bool = False  # the routes that ended badly instead of the clean ones
    hold_out: str = ""  # routes with this text in their path form bucket 0, which is never drawn


RULES: dict[str, CollectionRule] = {
    "full_pretrain": CollectionRule(posttrain=False),
    "full_posttrain": CollectionRule(posttrain=True),
    "town13_heldout_pretrain": CollectionRule(posttrain=False, hold_out="Town13"),
    "town13_heldout_posttrain": CollectionRule(posttrain=True, hold_out="Town13"),
    "failed": CollectionRule(posttrain=False, failed=True),
}


@dataclass(frozen=True)
class Counters:
    """LEAD's four counters of a collection."""

    total_routes: int
    trainable_routes: int
    all_frames: int
    trainable_frames: int


@dataclass(frozen=True)
class FilledCollection:
    """One collection: rows by bucket, factors by bucket, counters."""

    name: str
    bucket_names: tuple[str, ...]
    buckets: tuple[tuple[SampleKey, ...], ...]
    mixture: tuple[float, ...]
    counters: Counters


@dataclass(frozen=True)
class JudgedRoute:
    """One route with the verdicts of the two filters."""

    path: str
    frames: int
    reason: Reason
    ended_badly: bool
    incomplete_for: frozenset[str] = frozenset()  # stages that would draw a frame of which a file is missing


def stage_of(collection: str) -> str:
    """Returns the stage whose skips a collection has; an unknown name is refused where it is filled."""
    rule = RULES.get(collection)
    posttrain = rule.posttrain if rule else MINED.get(collection, (False, ()))[0]
    return STAGES[posttrain]


def judge_routes(tree: SourceTree, routes: RouteTree) -> tuple[JudgedRoute, ...]:
    """Applies the route filters to every route of a tree, reading each results.json once."""
    judged = []
    for folder in routes.routes:
        result: RouteResult | None = route_result(tree, folder.path) if folder.has_results else None
        reason = training_reason(folder, result)
        judged.append(JudgedRoute(folder.path, folder.frames, reason, completed_but_failed(folder, result)))
    return tuple(judged)


def without_incomplete(
    judged: Sequence[JudgedRoute], routes: RouteTree, keys: PreparationKeys, collections: Sequence[str]
) -> tuple[JudgedRoute, ...]:
    """Leaves each usable route out of the named collections that would draw a frame of which it lacks a file.

    LEAD lists such frames and ends when one of them is drawn; here one broken route costs neither a build nor a run.
    A route that no collection can use has a code of its own.
    """
    skips = {
        "pretrain": (keys.skip_first_pretrain, keys.skip_last_pretrain),
        "posttrain": (keys.skip_first_posttrain, keys.skip_last_posttrain),
    }
    stages = sorted({stage_of(name) for name in collections})
    whole = []
    for route in judged:
        usable = route.reason is Reason.KEPT or route.ended_badly
        missing = {}
        for stage in stages if usable else ():
            first, last = skips[stage]
            missing[stage] = routes.missing_file(route.path, range(first, route.frames - last), keys.unread_folders)
        lacking = {stage: file for stage, file in missing.items() if file}
        for file in sorted(set(lacking.values())):
            of = "" if len(lacking) == len(stages) else f" of {', '.join(lacking)}ing"
            log.warning(
                f"route {route.path} is left out{of}: file {file} is missing; restore it to train on the route"
                f"{_or_switch_off(file)}"
            )
        if lacking and len(lacking) == len(stages):
            route = replace(route, reason=Reason.MISSING_FILES, ended_badly=False)
        whole.append(replace(route, incomplete_for=frozenset(lacking)))
    return tuple(whole)


def _or_switch_off(path: str) -> str:
    """Returns what else helps where a file is missing that only a head or sensor that can be switched off reads."""
    folder = path.split("/")[-2]
    switch = next((key for key, folders in OPTIONAL_FOLDERS.items() if folder in folders), "")
    return f", or set {switch} to false if the tree has none" if switch else ""


def verdicts(routes: Sequence[JudgedRoute]) -> tuple[RouteVerdict, ...]:
    """Returns the per-route verdict table; kept routes of scenarios LEAD does not know have a code of their own."""
    return tuple(RouteVerdict(r.path, r.reason is Reason.KEPT, _code(r), r.frames) for r in routes)


def _code(route: JudgedRoute) -> str:
    known = route.path.split("/")[1] in SCENARIO_TYPES
    return KEPT_UNKNOWN_SCENARIO if route.reason is Reason.KEPT and not known else route.reason.value


def fill_collection(name: str, routes: Sequence[JudgedRoute], keys: Mapping[str, Any]) -> FilledCollection:
    """Fills one collection; `keys` holds the skips. Raises BadConfig with the near matches for an unknown name."""
    if name not in RULES:
        known = [*RULES, *MINED]
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(known)}"
        raise BadConfig(f"collections: found {name!r}; {hint}")
    rule = RULES[name]
    stage = stage_of(name)
    first, last = int(keys[f"skip_first_{stage}"]), int(keys[f"skip_last_{stage}"])
    whole = [route for route in routes if stage not in route.incomplete_for]
    used = [route for route in whole if (route.ended_badly if rule.failed else route.reason is Reason.KEPT)]
    rows: list[list[SampleKey]] = [[], []] if rule.hold_out else [[]]
    for route in used:
        bucket = 1 if rule.hold_out and rule.hold_out not in route.path else 0
        rows[bucket] += [SampleKey(route.path, frame) for frame in range(first, route.frames - last)]
    total, trainable = sum(map(len, rows)), len(rows[-1])
    return FilledCollection(
        name=name,
        bucket_names=(rule.hold_out.lower(), "other_towns") if rule.hold_out else ("all",),
        buckets=tuple(tuple(bucket) for bucket in rows),
        mixture=(0.0, total / max(1, trainable)) if rule.hold_out else (1.0,),
        counters=Counters(len(routes), len(used), total, trainable),
    )


def fill_mined(
    name: str,
    routes: Sequence[JudgedRoute],
    keys: Mapping[str, Any],
    buckets_of: Callable[[Sequence[SampleKey], Sequence[Rule]], Iterable[int]],
) -> FilledCollection:
    """Fills a collection of MINED: every frame of the kept routes in the bucket that `buckets_of` finds for it.

    Buckets have LEAD's numbers; `buckets_of` returns positions among the rules, in the order of their tests.
    """
    posttrain, rules = MINED[name]
    base = fill_collection("full_posttrain" if posttrain else "full_pretrain", routes, keys)
    rows: dict[str, list[SampleKey]] = {rule.name: [] for rule in numbered(rules)}
    for key, position in zip(base.buckets[0], buckets_of(base.buckets[0], rules), strict=True):
        rows[rules[position].name].append(key)
    return FilledCollection(
        name=name,
        bucket_names=tuple(rows),
        buckets=tuple(tuple(bucket) for bucket in rows.values()),
        mixture=tuple(rule.factor for rule in numbered(rules)),
        counters=base.counters,
    )
