"""A campaign asks for what the goals say, in numbers: how many, how long, how fast, and nothing that is not there."""

import ast
import itertools
import json

import pytest

from campaign.data_goals import TRIALS, cases
from campaign.figures import LEAST_KILLS, LIMITS, VIOLATED, WANTED, conclude
from campaign.goals import NAMES, plans_of
from campaign.repeated import REPEATED
from lead_operator.kube.client import CALL_TIMEOUT_S
from lead_testing import PROJECT_ROOT
from lead_testing.any_spec.chains import EDIT, FIXED, WRONG, chains
from lead_testing.any_spec.states import CACHE, MOST_CHANGES, RUN, states
from lead_testing.kube_faults.goals import Learned
from lead_testing.kube_faults.journal import Journal
from lead_testing.kube_faults.plan import Plan
from lead_testing.kube_faults.trial import Outcome

CALLS = [("create pods", "drive-0", 201, ""), ("list pods", "", 200, ""), ("patch trainingruns/status", "a", 200, "")]
EVENTS = [("pods", "ADDED", "drive-0"), ("pods", "MODIFIED", "drive-0")]


@pytest.fixture
def learned() -> Learned:
    return {"finish": Outcome(Plan("finish"), journal=Journal(calls=CALLS, events=EVENTS))}


def test_every_goal_has_a_number_and_every_limit_a_goal() -> None:
    assert set(WANTED) == set(NAMES)
    assert set(LIMITS) <= set(NAMES)


@pytest.mark.parametrize("goal", TRIALS)
def test_a_goal_of_the_data_path_has_as_many_trials_as_it_asks_for(goal: str) -> None:
    assert len(set(cases(goal))) == WANTED[goal]


@pytest.mark.parametrize("goal", REPEATED)
def test_every_test_of_a_goal_exists(goal: str) -> None:
    for test in REPEATED[goal].tests:
        file, _, function = test.partition("::")
        body = ast.parse((PROJECT_ROOT / "tests/api" / file).read_text()).body
        assert not function or function in {n.name for n in body if isinstance(n, ast.FunctionDef)}, test


def test_fifteen_hundred_specs_are_all_different_and_of_both_kinds() -> None:
    tried = list(itertools.islice(states("7"), WANTED["R6"]))
    assert len({json.dumps([s.kind, s.manifest("a")["spec"]], sort_keys=True) for s in tried}) == 1500
    assert sum(s.kind == CACHE for s in tried) == 500
    assert all(sum(bool(change.bad) for change in s.changes) <= 1 for s in tried)
    assert {len(s.changes) for s in tried} == set(range(1, MOST_CHANGES + 1))
    assert 500 < sum(bool(s.bad) for s in tried) < 1000
    fields = {change.field for s in tried for change in s.changes}
    within = {
        "spec.stages[0].epochs",
        "spec.stages[0].seeds[0]",
        "spec.datasets[0].cacheRef.name",
        "spec.collections[0]",
    }
    assert within <= fields


def test_the_same_seed_draws_the_same_specs_and_chains() -> None:
    for draw in (states, chains):
        first, again, other = (list(map(str, itertools.islice(draw(seed), 20))) for seed in ("7", "7", "8"))
        assert first == again != other


def test_a_chain_is_five_changes_of_one_object_that_may_refuse_some() -> None:
    drawn = list(itertools.islice(chains("7"), WANTED["R6"] // 5))
    assert len(drawn) == 300
    assert {chain.kind for chain in drawn} == {RUN, CACHE}
    assert all(sorted(s.what for s in chain.steps) == [EDIT, EDIT, EDIT, FIXED, WRONG] for chain in drawn)


def test_slow_calls_last_half_a_minute_and_timeouts_outlast_the_operators_own(learned: Learned) -> None:
    lasting = {(f.kind, f.seconds) for plan in plans_of("R3", learned, 0, 7) for f in plan.faults if f.seconds}
    seconds = dict(lasting)
    assert (len(lasting), seconds["slow"]) == (2, 30.0)
    assert seconds["timeout"] > CALL_TIMEOUT_S


def test_deafness_is_tried_for_minutes_on_an_operator_as_it_is_shipped(learned: Learned) -> None:
    plans = plans_of("deaf", learned, 0, 7)
    assert {(f.kind, f.seconds) for plan in plans for f in plan.faults} == {
        ("outage", 60.0), ("outage", 300.0), ("outage", 1200.0), ("silence", 300.0),
    }  # fmt: skip
    assert all(plan.settings["LEAD_RELIST_SECONDS"] == "600" for plan in (*plans, *plans_of("R4", learned, 0, 7)))


@pytest.mark.parametrize(
    ("goal", "count", "done", "figures", "verdict"),
    [
        ("R5", 0, 50, {"takeover_s": [15.0] * 50}, "held"),
        ("R5", 0, 49, {"takeover_s": [15.0] * 49}, "held as far as it went"),
        ("R5", 3, 3, {"takeover_s": [15.0]}, "held as far as it went"),
        ("R5", 0, 50, {}, "held as far as it went"),
        ("R5", 0, 50, {"takeover_s": [15.0] * 40 + [25.0] * 10}, VIOLATED),
        ("R1", 0, 50, {"kills": [LEAST_KILLS - 1.0]}, VIOLATED),
        ("R1", 50, 50, {"kills": [LEAST_KILLS - 1.0]}, "held as far as it went"),
        ("R2", 0, 50, {}, "held"),
    ],
)
def test_a_verdict_says_whether_the_goal_was_held_and_whether_all_of_it_was_tried(
    goal: str, count: int, done: int, figures: dict[str, list[float]], verdict: str
) -> None:
    said = conclude(goal, count=count, asked=count or 50, done=done, seed=1, seconds=1, figures=figures, violations=[])
    assert (said["verdict"], said["done"]) == (verdict, done)
    assert bool(said["missed"]) == (verdict == VIOLATED)


def test_a_violation_is_a_violation_whatever_was_measured() -> None:
    said = conclude("R16", count=0, asked=10, done=10, seed=1, seconds=1, figures={}, violations=["no"])
    assert said["verdict"] == VIOLATED
