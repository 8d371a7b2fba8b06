"""The pure parts of the live campaign: which plans are drawn, what a plan's text may hold, and what a run must keep."""

import itertools
from typing import Any, cast

import pytest

from campaign.live.judge import Cost, unexplained, wrong_end, wrong_history, wrong_restarts, wrong_words
from campaign.live.kinds import CRASH, FREE, KINDS, STOP
from campaign.live.on_the_run import unlabel_pod
from campaign.live.plan import FEWEST, MOST, LivePlan, draw_plans, parse_live_plan
from campaign.live.scene import SAME_WEIGHTS, STORIES, LiveRun

UID, OTHER = "6a1b8f04-52a7-4c1e-9d3b-0f6a7e21c945", "7a1b8f04-52a7-4c1e-9d3b-0f6a7e21c945"


def drawn(seed: int, number: int = 60) -> list[LivePlan]:
    return list(itertools.islice(draw_plans(KINDS, tuple(STORIES), seed), number))


def test_the_same_seed_draws_the_same_plans() -> None:
    assert drawn(7) == drawn(7) != drawn(8)


def test_every_kind_is_drawn_once_before_any_is_drawn_again() -> None:
    names = [fault.kind for plan in drawn(7) for fault in plan.faults]
    assert set(names[: len(KINDS)]) == set(KINDS)


def test_a_plan_has_a_story_in_which_its_faults_count_and_its_end_comes_last() -> None:
    for plan in drawn(3, 200):
        assert plan.story in STORIES and 1 <= len(plan.faults) <= MOST
        assert all(KINDS[fault.kind].story in ("", plan.story) for fault in plan.faults)
        assert not any(KINDS[fault.kind].ends for fault in plan.faults[:-1])
        assert plan.faults[0].when in ("training", "starting")
        shares = [fault.at for fault in plan.faults if fault.when == "training"]
        assert shares == sorted(shares)
    assert sum(len(plan.faults) >= FEWEST for plan in drawn(3, 200)) > 150


def test_nothing_strikes_at_once_with_what_stops_the_cluster_that_it_needs() -> None:
    met = set()
    for plan in drawn(5, 300):
        for before, fault in itertools.pairwise(plan.faults):
            met.add(fault.when)
            if fault.when == "at once":
                assert not KINDS[before.kind].control and not KINDS[fault.kind].control
    assert met == {"training", "at once", "recovering"}


def test_every_story_has_a_reference_of_its_weights() -> None:
    assert set(SAME_WEIGHTS.values()) <= set(STORIES) - set(SAME_WEIGHTS)


def test_a_plan_is_replayed_from_its_text() -> None:
    plan = drawn(7)[0]
    assert parse_live_plan(plan.to_json(), KINDS) == plan


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"story": "one", "kinds": []}', "unknown keys"),
        ('{"story": "one", "faults": [{"kind": "an earthquake"}]}', "'an earthquake' is unknown"),
        ('{"story": "one", "faults": [{"kind": "a pod is deleted", "when": "later"}]}', "strikes 'later'"),
    ],
)
def test_a_wrong_plan_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_live_plan(text, KINDS)


@pytest.mark.parametrize(
    "text",
    [
        "<urllib3.connection.HTTPSConnection object at 0x7f31c0>: refused",
        "attempt None failed",
        "the checkpoint is {}",
        "see kubectl describe pod {pod}",
        f"the store answered 503 to GET runs/team-a/{OTHER}/train-s0/manifest/",
        "attempt 1 of stage train: ",
        "one; ; two",
        "pod live-ab12-4-pretrain-s0-a1-0 is gone",
        "",
    ],
)
def test_a_sentence_that_no_person_should_read_is_found(text: str) -> None:
    assert wrong_words(text, UID, "live-ab12-3")


@pytest.mark.parametrize(
    "text",
    [
        f"the first of its stage: s3://lead/runs/team-a/{UID}/train-s0/checkpoints/000000000120/0001-7c1e90ab42d3/",
        "pod live-ab12-3-pretrain-s0-a1-0 waits: Unschedulable: 0/1 nodes are available",
        "0 of 2 pods run; if that lasts, kubectl describe pod live-ab12-3-pretrain-s0-a1-0 shows what it waits for",
    ],
)
def test_a_sentence_of_the_run_itself_passes(text: str) -> None:
    assert wrong_words(text, UID, "live-ab12-3") == []


@pytest.mark.parametrize(
    ("restarts", "costs", "wrong"),
    [
        ({"total": 1, "program": 1}, [CRASH], 0),
        ({"total": 0}, [STOP], 0),
        ({"total": 0}, [CRASH], 1),
        ({"total": 1, "infrastructure": 1}, [CRASH], 1),
        ({"total": 2, "program": 2}, [CRASH], 2),
        ({"total": 2, "program": 1, "voluntary": 1}, [CRASH, STOP], 0),
        ({"total": 2, "program": 1}, [CRASH, Cost(1, ("program",))], 1),
        ({"total": 1, "voluntary": 1}, [], 2),
    ],
)
def test_restarts_are_held_against_what_the_faults_may_cost(
    restarts: dict[str, Any], costs: list[Cost], wrong: int
) -> None:
    assert len(wrong_restarts(restarts, costs)) == wrong


def test_a_warning_that_no_fault_explains_is_found() -> None:
    events = [{"type": "Warning", "reason": "Hung"}, {"type": "Normal", "reason": "Started"}]
    assert len(unexplained(events, frozenset())) == 1
    assert unexplained(events, frozenset({"Hung"})) == []


LOST = '{"error": "LeaseLost: lease lead/lead-operator not renewed for 20 s", "event": "operator_ends"}'


@pytest.mark.parametrize(
    ("terminated", "wrong"),
    [
        ({"reason": "Completed", "exitCode": 0}, ""),
        ({"reason": "Error", "exitCode": 137}, ""),
        ({"reason": "Error", "exitCode": 1, "message": f"an earlier line\n{LOST}\n"}, ""),
        ({"reason": "OOMKilled", "exitCode": 137}, "OOMKilled 137: its log says nothing"),
        ({"reason": "Error", "exitCode": 1}, "Error 1: its log says nothing"),
        (
            {
                "reason": "Error",
                "exitCode": 1,
                "message": '{"error": "LeaseLost: a; KeyError: 1", "event": "operator_ends"}',
            },
            "Error 1: LeaseLost: a; KeyError: 1",
        ),
        ({"reason": "Error", "exitCode": 2, "message": "lead-operator: LEAD_WORKERS is 0"}, "LEAD_WORKERS is 0"),
    ],
)
def test_an_end_of_the_operator_is_explained_by_its_last_log_line(terminated: dict[str, Any], wrong: str) -> None:
    said = wrong_end(terminated)
    assert wrong in said and bool(said) == bool(wrong)


class Unlabelled:
    """A live run whose pod answers to a removal of its labels as it is told to."""

    name = "live-ab12-3"

    def __init__(self, stderr: str) -> None:
        self.home, self._stderr = self, stderr

    def a_pod(self) -> dict[str, Any]:
        return {"metadata": {"name": "live-ab12-3-pretrain-s0-a1-0"}}

    def kubectl(self, *arguments: str) -> str:
        assert not self._stderr, f"kubectl {' '.join(arguments)}: {self._stderr}"
        return "pod/x labeled"


def test_a_pod_whose_labels_somebody_removes_keeps_them() -> None:
    refusal = (
        'Error from server (Forbidden): pods "x" is forbidden: metadata.labels of a pod of the operator '
        "(app.kubernetes.io/managed-by: lead-operator) were set by kubernetes-admin, expected the operator alone"
    )
    unlabel_pod(cast(LiveRun, Unlabelled(refusal)))
    with pytest.raises(ValueError, match="expected the API server to refuse"):
        unlabel_pod(cast(LiveRun, Unlabelled("")))
    with pytest.raises(LookupError):
        unlabel_pod(cast(LiveRun, Unlabelled('Error from server (NotFound): pods "x" not found')))
    kind = KINDS["somebody removes a pod's labels"]
    assert (kind.cost, kind.reasons) == (FREE, ())


def a_status(attempt: int, phase: str = "Running", total: int = 0, **messages: str) -> dict[str, Any]:
    return {
        "phase": phase, "stage": {"name": "train", "seed": 0}, "restarts": {"total": total},
        "stages": [{"name": "train", "seed": 0, "attempt": attempt}],
        "conditions": [{"type": kind, "message": text} for kind, text in messages.items()],
    }  # fmt: skip


ABOUT = a_status(1, "Recovering", Ready="attempt 1 failed; the next one is about to start")


@pytest.mark.parametrize(
    ("statuses", "wrong"),
    [
        ([a_status(1), ABOUT, a_status(2, total=1), a_status(2, "Succeeded", 1)], 0),
        ([a_status(1), {}, a_status(1)], 0),
        ([ABOUT, a_status(1, "Recovering", Ready="attempt 1 failed; the next one waits: CacheNotFound")], 0),
        ([ABOUT, a_status(1)], 1),
        ([a_status(2), a_status(1)], 1),
        ([a_status(2, total=1), a_status(2)], 1),
        ([a_status(2, Ready="all 2 pods of attempt 1 run")], 1),
        ([a_status(2, Progressing="attempt 1 is training")], 1),
        ([a_status(1, "Succeeded"), a_status(1)], 1),
    ],
)
def test_statuses_that_contradict_each_other_are_found(statuses: list[dict[str, Any]], wrong: int) -> None:
    assert len(list(wrong_history(statuses))) == wrong
