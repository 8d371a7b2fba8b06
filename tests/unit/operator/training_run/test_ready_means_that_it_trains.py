"""Ready is True while all ranks train and at no other time; each stage says where it stands in the run's words."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from lead_operator.decisions.observed import ObservedCheckpoint, ObservedInstance, ObservedPod, ObservedRun
from lead_operator.decisions.plan import Plan
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_operator.names import Condition
from lead_operator.resources.crd_defaults import fill_defaults
from lead_operator.resources.training_run import TrainingRun
from lead_protocol.progress_record import ProgressRecord
from lead_testing.makers import NOW, RUN_UID, SETTINGS, a_failed_pod, a_pod, a_ready_cache, a_run_body, a_training_run
from lead_testing.statuses import find_condition

PREFIX = f"runs/team-a/{RUN_UID}/train-s0/checkpoints/x/"
FINAL = ObservedCheckpoint("key", PREFIX, 48, 4, 1, 10, "2026-01-01T12:00:00+00:00")
WAITING = (a_pod(0), a_pod(1, phase="Pending", ready=False))
GROUP = (a_pod(0), a_pod(1))
SEEDS = [{"name": "train", "epochs": 4, "seeds": [0, 1]}]


def told(phase: str, seed: int = 0, attempt: int = 1, **fields: Any) -> ObservedInstance:
    fields = {"seq": 1, "epoch": 0, "epochs": 4, "step": 0, "steps": 48} | fields
    record = ProgressRecord(attempt=attempt, phase=phase, **fields)  # type: ignore[arg-type]
    return ObservedInstance("train", seed, progress=record, highest_attempt=attempt)


@dataclass
class Life:
    """One run, looked at again and again."""

    run: TrainingRun = field(default_factory=a_training_run)
    status: dict[str, Any] = field(default_factory=dict)
    at_s: int = 0

    def observe(self, pods: Sequence[ObservedPod] = (), *instances: ObservedInstance) -> Plan:
        """Returns the plan of another look, one second after the last one."""
        self.at_s += 1
        seen = instances or tuple(ObservedInstance(i.stage.name, i.seed) for i in self.run.instances)
        observed = ObservedRun(
            now=NOW + timedelta(seconds=self.at_s), previous=self.status, pods=tuple(pods), instances=seen,
            caches=(a_ready_cache(),), service_exists=True,
        )  # fmt: skip
        plan = decide_training_run(self.run, observed, SETTINGS)
        self.status = plan.status
        fill_defaults({**a_run_body(), "status": plan.status})  # the CRD knows every word of it
        return plan

    @property
    def ready(self) -> tuple[str, str]:
        """Status and reason of the condition."""
        found = find_condition(self.status, Condition.READY) or {}
        return found["status"], found["reason"]

    @property
    def phases(self) -> list[str]:
        """The run's phase, then those of its stages."""
        return [self.status["phase"], *(entry["phase"] for entry in self.status["stages"])]


def test_a_run_is_ready_from_its_first_report_of_training_and_its_stage_agrees() -> None:
    life = Life()
    life.observe()
    assert (life.phases, life.ready) == (["Starting", "Starting"], ("False", "PodsStarting"))
    life.observe(WAITING)
    assert (life.phases, life.ready) == (["Starting", "Starting"], ("False", "PodsStarting"))
    for loading in ((), (told("Starting"),), (told("Loading", seq=2),)):
        life.observe(GROUP, *loading)
        assert (life.phases, life.ready) == (["Starting", "Starting"], ("False", "Loading"))
        assert life.status["reason"] == "Loading" and life.status["display"]["pods"] == "2/2"
    life.observe(GROUP, told("Training", seq=3, step=1))
    assert (life.phases, life.ready) == (["Running", "Running"], ("True", "AllRanksRun"))
    ended = (a_pod(0, phase="Succeeded", ready=False), a_pod(1))
    life.observe(ended, told("Done", seq=4, epoch=4, step=48))
    assert (life.phases, life.ready) == (["Running", "Running"], ("False", "Finishing"))


def test_what_a_run_loads_is_no_event() -> None:
    life = Life()
    life.observe()
    life.observe(WAITING)
    assert [note.reason for note in life.observe(GROUP).events] == []


def test_an_attempt_that_follows_a_failure_is_not_ready_before_it_trains() -> None:
    life = Life()
    life.observe()
    life.observe(GROUP, told("Training", step=1))
    life.observe((a_pod(0), a_failed_pod(1)), told("Training", step=1))
    life.at_s += 60
    life.observe((a_pod(0, deleting=True), a_failed_pod(1)), told("Training", step=1))
    again = (a_pod(0, attempt=2), a_pod(1, attempt=2))
    life.observe(again, told("Training", step=1))
    assert (life.phases, life.ready) == (["Recovering", "Recovering"], ("False", "Loading"))
    life.observe(again, told("Training", attempt=2, step=1))
    assert (life.phases, life.ready) == (["Running", "Running"], ("True", "AllRanksRun"))


def test_a_run_whose_final_checkpoint_is_awaited_calls_its_stage_running_as_itself() -> None:
    life = Life()
    life.observe()
    life.observe(tuple(a_pod(rank, phase="Succeeded", ready=False, exit_code=0) for rank in (0, 1)))
    assert (life.phases, life.ready[0]) == (["Running", "Running"], "False")


@pytest.mark.parametrize("gone", [False, True])
def test_a_suspended_run_has_a_suspended_stage(gone: bool) -> None:
    life = Life()
    life.observe()
    life.observe(GROUP, told("Training", step=1))
    life.run = a_training_run(suspend=True)
    life.observe(() if gone else GROUP, told("Training", step=1))
    assert life.phases == (["Suspended", "Suspended"] if gone else ["Checkpointing", "Checkpointing"])
    assert life.ready[0] == "False"


def test_of_seeds_side_by_side_each_says_where_it_stands_and_ready_waits_for_all() -> None:
    life = Life(a_training_run(stages=SEEDS, parallelism=2))
    life.observe()
    pods = (*GROUP, a_pod(0, seed=1), a_pod(1, seed=1))
    life.observe(pods, told("Training", step=1), told("Loading", seed=1))
    assert (life.phases, life.ready) == (["Running", "Running", "Starting"], ("False", "Loading"))
    assert "attempt 1 of train s1 loads" in (find_condition(life.status, Condition.READY) or {})["message"]
    life.observe(pods, told("Training", step=1), told("Training", seed=1, seq=2, step=1))
    assert (life.phases, life.ready) == (["Running", "Running", "Running"], ("True", "AllRanksRun"))


def test_a_stage_that_has_not_begun_is_pending_and_one_that_is_done_has_succeeded() -> None:
    stages = [{"name": "train", "epochs": 4}, {"name": "tune", "epochs": 1, "initFrom": {"stage": "train"}}]
    life = Life(a_training_run(stages=stages))
    life.observe()
    assert life.phases == ["Starting", "Starting", "Pending"]
    done = ObservedInstance("train", 0, checkpoint=FINAL, highest_attempt=1)
    life.observe(
        tuple(a_pod(rank, phase="Succeeded", ready=False) for rank in (0, 1)), done, ObservedInstance("tune", 0)
    )
    assert life.phases == ["Starting", "Succeeded", "Starting"]
