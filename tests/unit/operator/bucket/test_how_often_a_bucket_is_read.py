"""A bucket is read less often the longer nothing changes in it, and as often as ever where something does."""

import itertools
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lead_operator.bucket.stillness import LONGEST_S, SHARE, Stillness
from lead_operator.controllers.reconciler import Reconciler
from lead_operator.decisions.plan import Plan
from lead_operator.kube.kinds import TRAINING_RUN, key_of
from lead_operator.memory import Memories
from lead_operator.resources.training_run import parse_training_run
from lead_operator.resources.training_run_status import TrainingRunStatus
from lead_testing.makers import SETTINGS, a_run_body

PROGRESS_S = 10.0  # as shipped


def readings(changes_every_s: float, lasts_s: float) -> list[tuple[float, float]]:
    """Returns (when, how old the newest change was) of each reading of a run that changes so often."""
    stillness, now, seen, found = Stillness(), 0.0, -1, list[tuple[float, float]]()
    while now < lasts_s:
        newest = int(now // changes_every_s)
        stillness.note(now, changed=newest != seen)
        found.append((now, now - newest * changes_every_s if newest != seen else 0.0))
        seen = newest
        now += max(PROGRESS_S, stillness.rests_s)
    return found


@pytest.mark.parametrize("every_s", [5.0, 10.0, 20.0, 39.0])
def test_a_run_that_changes_within_forty_seconds_is_read_as_often_as_ever(every_s: float) -> None:
    times = [now for now, _ in readings(every_s, 3600)]
    assert {round(later - now, 3) for now, later in itertools.pairwise(times)} == {PROGRESS_S}


@pytest.mark.parametrize("every_s", [60.0, 300.0, 3600.0, 7200.0])
def test_what_is_shown_is_never_older_than_a_share_of_the_silence_before_it(every_s: float) -> None:
    late = [late_s for _, late_s in readings(every_s, 20 * every_s)]
    assert max(late) <= max(PROGRESS_S, min(LONGEST_S, SHARE * every_s))


def test_a_silent_run_is_read_thirty_times_an_hour() -> None:
    assert sum(now > 3600 for now, _ in readings(1e9, 7200)) == 30


def test_a_change_makes_it_quick_again() -> None:
    stillness = Stillness()
    stillness.note(0.0, changed=True)
    stillness.note(3600.0, changed=False)
    assert stillness.rests_s == LONGEST_S
    stillness.note(3700.0, changed=True)
    assert stillness.rests_s == 0.0


class Looks:
    """A controller whose first look is an old one; a young one shows that the run has gone on."""

    kind, status, finalizer = TRAINING_RUN, TrainingRunStatus, ""

    def __init__(self, old_says: str) -> None:
        self.young = list[bool]()
        self.old_says = old_says

    def rests_for_s(self, *_: Any) -> None:
        return None

    def parse(self, body: Any) -> Any:
        return parse_training_run(body)

    def expected_pods(self, *_: Any, **__: Any) -> tuple[str, ...]:
        return ()

    async def observe(self, run: Any, body: Any, *, young: bool = False) -> Any:
        self.young.append(young)
        rested = len(self.young) == 1
        return SimpleNamespace(rested=rested, previous={"phase": "Running"}, pods=(), next_reading_s=None)

    def decide(self, run: Any, observed: Any) -> Plan:
        return Plan(status={"phase": self.old_says if observed.rested else "Running"})

    async def record(self, run: Any, body: Any, plan: Plan) -> Plan:
        return plan

    def follow(self, *_: Any) -> None:
        pass

    def missed_events(self, *_: Any) -> None:
        return None


@pytest.mark.parametrize(("old_says", "looks"), [("Running", [False]), ("Recovering", [False, True])])
async def test_a_status_changes_by_a_young_look_alone(old_says: str, looks: list[bool]) -> None:
    """Else a run would be restarted as hung that has reported since its bucket was read."""
    body = a_run_body()
    applied = list[Plan]()

    async def apply(kind: Any, body: Any, plan: Plan) -> None:
        applied.append(plan)

    controller = Looks(old_says)
    copies = SimpleNamespace(get=lambda namespace, name: body)
    reconciler = Reconciler(
        client=cast(Any, None),
        informers=cast(Any, SimpleNamespace(serves=lambda namespace: True, of=lambda kind, namespace: copies)),
        controllers={TRAINING_RUN.kind: cast(Any, controller)},
        applier=cast(Any, SimpleNamespace(apply=apply)),
        recorder=cast(Any, None),
        settings=SETTINGS,
        memories=Memories(),
    )
    await reconciler.reconcile(key_of(body, TRAINING_RUN))
    assert controller.young == looks
    assert [plan.status for plan in applied] == [{"phase": "Running"}]
