"""A spec that is rejected has the conditions that people and tools wait for, like any other."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from lead_operator.controllers.dataset_cache import DatasetCacheController
from lead_operator.controllers.reconciler import Reconciler
from lead_operator.controllers.training_run import TrainingRunController
from lead_operator.decisions.plan import EventNote, Plan
from lead_operator.decisions.rejected import decide_rejected
from lead_operator.kube.kinds import TRAINING_RUN, key_of
from lead_operator.kube.server_clock import ServerClock
from lead_operator.memory import Memories
from lead_operator.resources.recipe_config import Rejection
from lead_operator.resources.status_format import parse_status
from lead_testing.makers import NOW, SETTINGS, a_run_body

REJECTION = Rejection("ConfigTooDeep", "spec.config is nested 40 levels deep, expected at most 32")
ENDS = {TrainingRunController: ["Succeeded", "Failed"], DatasetCacheController: ["Failed"]}


def conditions(kind: Any, held: dict[str, Any]) -> dict[str, str]:
    previous = parse_status(kind.status, held)
    plan = decide_rejected(REJECTION, previous, kind.not_ended, generation=1, now=NOW)
    return {each["type"]: each["status"] for each in plan.status["conditions"]}


@pytest.mark.parametrize("kind", ENDS)
def test_what_was_never_served_has_not_ended(kind: Any) -> None:
    assert conditions(kind, {}) == {"Accepted": "False"} | dict.fromkeys(ENDS[kind], "False")


@pytest.mark.parametrize("kind", ENDS)
def test_what_has_ended_stays_so(kind: Any) -> None:
    failed = {
        "type": "Failed", "status": "True", "reason": "BadConfig", "message": "unknown key",
        "lastTransitionTime": "2026-01-01T12:00:00Z",
    }  # fmt: skip
    assert conditions(kind, {"phase": "Failed", "conditions": [failed]})["Failed"] == "True"


async def test_a_spec_that_an_older_crd_let_through_is_rejected_in_its_status() -> None:
    body, applied, events = a_run_body(), list[Plan](), list[EventNote]()
    body["spec"]["nodes"] = "two"

    async def apply(kind: Any, body: Any, plan: Plan) -> None:
        applied.append(plan)

    copies = SimpleNamespace(get=lambda namespace, name: body)
    nothing = cast(Any, None)
    runs = TrainingRunController(nothing, nothing, nothing, nothing, nothing, nothing, nothing, Memories(), SETTINGS)
    reconciler = Reconciler(
        client=cast(Any, SimpleNamespace(clock=ServerClock())),
        informers=cast(Any, SimpleNamespace(serves=lambda namespace: True, of=lambda kind, namespace: copies)),
        controllers={TRAINING_RUN.kind: runs},
        applier=cast(Any, SimpleNamespace(apply=apply)),
        recorder=cast(Any, SimpleNamespace(record=lambda body, note: events.append(note))),
        settings=SETTINGS,
        memories=Memories(),
    )
    assert await reconciler.reconcile(key_of(body, TRAINING_RUN)) is None
    (plan,), (event,) = applied, events
    accepted = plan.status["conditions"][0]
    assert (accepted["type"], accepted["status"], accepted["reason"]) == ("Accepted", "False", "SpecRefused")
    assert "spec.nodes is 'two', expected int" in accepted["message"] == event.message
