"""After a restart the steps behind the checkpoint are trained again: that is progress, no false report and no hang."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lead_operator.decisions.observed import ObservedCheckpoint, ObservedInstance, ObservedPod, ObservedRun
from lead_operator.decisions.plan import Plan
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_protocol.progress_record import ProgressRecord
from lead_testing.makers import NOW, RUN_UID, SETTINGS, a_failed_pod, a_pod, a_ready_cache, a_training_run

STEPS, STEPS_PER_EPOCH = 48, 12
RUN = a_training_run(failurePolicy={"hangTimeoutSeconds": 100, "maxRestarts": 9})


def checkpoint(step: int) -> ObservedCheckpoint:
    prefix = f"runs/team-a/{RUN_UID}/train-s0/checkpoints/x/"
    return ObservedCheckpoint(f"m{step}", prefix, step, step // STEPS_PER_EPOCH, 1, 10, "")


def a_report(attempt: int, seq: int, step: int = 0, **fields: Any) -> ProgressRecord:
    values = {"phase": "Training", "epoch": step // STEPS_PER_EPOCH, "epochs": 4, "steps": STEPS} | fields
    return ProgressRecord(attempt=attempt, seq=seq, step=step, **values)


class Life:
    """A run whose status is carried from one look to the next."""

    def __init__(self) -> None:
        self.now_s, self.plan, self.attempt, self.committed = 0.0, Plan(status={}), 0, 0
        self.next_attempt()

    def observe(
        self, report: ProgressRecord | None = None, *, after_s: float = 0.0, pods: tuple[ObservedPod, ...] | None = None
    ) -> dict[str, Any]:
        self.now_s += after_s
        bucket = ObservedInstance(
            "train", 0, progress=report, checkpoint=checkpoint(self.committed) if self.committed else None,
            highest_attempt=self.attempt,
        )  # fmt: skip
        group = (a_pod(0, attempt=self.attempt), a_pod(1, attempt=self.attempt)) if pods is None else pods
        observed = ObservedRun(
            now=NOW + timedelta(seconds=self.now_s), pods=group, service_exists=True, caches=(a_ready_cache(),),
            instances=(bucket,), previous=self.plan.status,
        )  # fmt: skip
        self.plan = decide_training_run(RUN, observed, SETTINGS)
        return self.plan.status

    def next_attempt(self) -> None:
        """Loses a rank of the attempt that runs, if one does, and begins the next one."""
        if self.attempt:
            pods = tuple(a_failed_pod(rank, 137, attempt=self.attempt) for rank in (0, 1))
            self.observe(pods=pods)
            assert self.plan.claim_attempt or self.observe(after_s=61, pods=pods)
        else:
            self.observe(pods=())
        self.attempt = self.plan.status["stages"][0]["attempt"]

    @property
    def progressing(self) -> tuple[str, str]:
        found = next(c for c in self.plan.status["conditions"] if c["type"] == "Progressing")
        return found["status"], found["reason"]


def after_a_loss() -> Life:
    """Returns a run that has reported steps 1 to 40, of which 12 are in a checkpoint, and begins its second attempt."""
    life = Life()
    for seq, step in enumerate((0, 1, 12, 40)):
        life.observe(a_report(1, seq, step), after_s=5)
    life.committed = 12
    life.observe(a_report(1, 9, 40), after_s=5)
    life.next_attempt()
    assert life.attempt == 2
    return life


def step_of(status: dict[str, Any]) -> int:
    return int(status["stages"][0]["progress"]["step"])


def test_an_attempt_shows_its_checkpoint_while_it_loads_and_then_its_own_steps() -> None:
    life = after_a_loss()
    status = life.observe(a_report(2, 0, phase="Starting", steps=0))
    assert (status["phase"], status["display"]["epoch"], status["display"]["step"]) == (
        "Recovering", "1/4", "12/48",
    )  # fmt: skip
    life.observe(a_report(2, 2, 12, phase="Loading", resumed_from_step=12))
    for seq, step in enumerate((12, 13, 20, 24, 39, 40, 41), 3):
        status = life.observe(a_report(2, seq, step, resumed_from_step=12, eta_s=60.0), after_s=5)
        progress = status["stages"][0]["progress"]
        assert (status["phase"], life.progressing) == ("Running", ("True", "StepsArrive"))
        assert (progress["step"], progress["epoch"], progress["attempt"]) == (step, step // STEPS_PER_EPOCH, 2)
        assert progress["etaSeconds"] == 60
    assert status["restarts"]["total"] == 1


def test_a_run_that_lost_more_than_the_time_out_is_not_killed_again() -> None:
    life = after_a_loss()
    life.observe(a_report(2, 0, phase="Starting", steps=0))
    for seq, step in enumerate(range(13, 40), 1):  # 27 steps of 30 s: eight times hangTimeoutSeconds
        status = life.observe(a_report(2, seq, step, resumed_from_step=12), after_s=30)
        assert status["phase"] == "Running"
    assert status["restarts"]["total"] == 1
    status = life.observe(a_report(2, 99, 39, resumed_from_step=12), after_s=100)
    assert status["lastFailure"]["reason"] == "Hung", "the clock of a hang has run on"


def test_an_attempt_that_took_an_older_checkpoint_than_the_newest_is_believed() -> None:
    life = after_a_loss()
    life.committed = 36  # of the first attempt, and found spoiled by the second
    assert step_of(life.observe(a_report(2, 0, phase="Loading", steps=0))) == 36
    life.committed = 12
    assert step_of(life.observe(a_report(2, 1, 12, phase="Loading", resumed_from_step=12))) == 12
    assert step_of(life.observe(a_report(2, 2, 13, resumed_from_step=12), after_s=5)) == 13
    assert life.progressing == ("True", "StepsArrive")


def test_a_step_that_goes_back_within_one_attempt_is_refused() -> None:
    life = after_a_loss()
    life.observe(a_report(2, 1, 30, resumed_from_step=12))
    status = life.observe(a_report(2, 2, 20, resumed_from_step=12), after_s=5)
    assert (step_of(status), life.progressing) == (30, ("False", "ImplausibleReport"))


@pytest.mark.parametrize("epoch", [5])
def test_an_epoch_beyond_the_stage_is_refused_in_a_later_attempt_too(epoch: int) -> None:
    life = after_a_loss()
    assert step_of(life.observe(a_report(2, 1, 13, epoch=epoch))) == 40
    assert life.progressing == ("False", "ImplausibleReport")


@settings(max_examples=60)
@given(
    attempts=st.lists(
        st.tuples(st.integers(0, STEPS // 2), st.lists(st.integers(1, 7), min_size=1, max_size=6)),
        min_size=1,
        max_size=5,
    ),
    pause_s=st.integers(1, 99),
    loads=st.booleans(),
)
def test_every_report_that_is_true_is_shown_at_once_whatever_was_lost_before(
    attempts: list[tuple[int, list[int]]], pause_s: int, loads: bool
) -> None:
    life, newest = Life(), 0
    for number, (begin, advances) in enumerate(attempts):
        if number:
            life.committed = min(begin, newest) or life.committed  # a run that lost every checkpoint would fail
            life.next_attempt()
        resumed, step = life.committed or None, life.committed
        life.observe(a_report(life.attempt, 0, phase="Starting", steps=0), after_s=pause_s)
        if loads:
            life.observe(a_report(life.attempt, 1, step, phase="Loading", resumed_from_step=resumed))
        for seq, more in enumerate(advances, 2):
            if step + more >= STEPS:
                break
            step += more
            status = life.observe(a_report(life.attempt, seq, step, resumed_from_step=resumed), after_s=pause_s)
            assert (step_of(status), status["stages"][0]["progress"]["attempt"]) == (step, life.attempt)
            assert (status["phase"], life.progressing[0]) == ("Running", "True")
        newest = max(newest, step)
    assert life.plan.status["restarts"]["total"] == len(attempts) - 1
