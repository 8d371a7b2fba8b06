"""Kept routes, ordered rows and counters of every collection equal those LEAD's own code built on the same tree."""

import json
from functools import cache
from typing import Any

import pytest

from lead_testing import shared_dir
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.lead.buckets import RULES, JudgedRoute, fill_collection, judge_routes
from lead_trainer.recipes.lead.ingest.route_tree import route_tree
from lead_trainer.recipes.lead.route_filter import Reason

SKIPS = {"skip_first_pretrain": 1, "skip_last_pretrain": 1, "skip_first_posttrain": 8, "skip_last_posttrain": 8}


@cache
def golden() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((shared_dir() / "golden/lead_data/buckets.json").read_text())
    return document


@cache
def judged() -> tuple[JudgedRoute, ...]:
    tree = FolderTree(shared_dir() / "golden/lead_data/carla_leaderboard2")
    return judge_routes(tree, route_tree(tree.files()))


def test_every_route_gets_leads_verdict() -> None:
    expected = {f"data/{r['scenario']}/{r['route']}": r for r in golden()["routes"]}
    assert {r.path for r in judged()} == set(expected)
    for route in judged():
        verdict = expected[route.path]
        assert (route.reason is Reason.KEPT) == verdict["kept"], route
        assert route.ended_badly == verdict["completed_but_fail"], route
        assert (route.reason is Reason.NO_RESULTS) == verdict["route_not_finished"], route
        assert route.frames == verdict["bboxes"], route


@pytest.mark.parametrize("name", sorted(RULES))
def test_rows_counters_and_mixture_equal_leads(name: str) -> None:
    expected = golden()["collections"][name]
    filled = fill_collection(name, judged(), SKIPS)
    assert vars(filled.counters) == expected["counters"]
    assert dict(enumerate(filled.mixture)) == {int(k): v for k, v in expected["mixture"].items()}
    for bucket, truth in zip(filled.buckets, expected["buckets"], strict=True):
        table = ["/".join(["data", *route]) for route in truth["route_table"]]
        assert [(key.route, key.frame) for key in bucket] == [(table[row[0]], row[1]) for row in truth["rows"]]


def test_an_unknown_collection_is_refused_with_the_near_match() -> None:
    with pytest.raises(BadConfig, match="full_pretrain"):
        fill_collection("full_pretrian", [], SKIPS)
