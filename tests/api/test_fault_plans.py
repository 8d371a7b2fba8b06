"""Eight stories through faults between operator and API server: each comes to the end it has without them.

A failure prints its plan and the command that replays it. `make campaign` runs all plans, this ring a sample of each.
"""

from pathlib import Path

import pytest

from lead_testing.api_bench import open_bench
from lead_testing.kube_faults.goals import Learned, choose, join
from lead_testing.kube_faults.plan import Fault, Plan, parse_plan
from lead_testing.kube_faults.trial import Outcome, report, run_trials
from lead_testing.local_cluster.control_plane import ControlPlane
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.minio_server import MinioServer
from lead_testing.operator_process import wait_for

SEED = 1
FAULTS = {"R1": 3, "R2": 24, "R3": 30, "R4": 20}  # an R1 fault is a kill after every write of a story
TOGETHER = 4
MAX_WRITES = 13  # about one run of one stage and two pods on a cache that is Ready, nothing disturbed


def test_the_eight_stories_end_well_undisturbed(learned: Learned) -> None:
    ends = {name: [run["phase"] for run in outcome.end["runs"].values()] for name, outcome in learned.items()}
    assert ends == {
        "finish": ["Succeeded"], "cancel": [], "edit": ["Succeeded"], "recreate": ["Succeeded"],
        "failing_rank": ["Succeeded"], "build": [], "shared_cache": ["Succeeded", "Succeeded"], "collect": [],
    }  # fmt: skip
    assert learned["failing_rank"].end["runs"]["drive"]["restarts"]["program"] == 1
    assert all(outcome.kills == 0 and outcome.exits == [] for outcome in learned.values())


def test_a_run_costs_few_writes_from_its_first_status_to_its_end(
    control_plane: ControlPlane, minio: MinioServer, tmp_path: Path
) -> None:
    with open_bench(control_plane, minio, tmp_path, Plan("")) as bench:
        assert bench.proxy is not None
        # Looks by the clock are left out: how many there are depends on the machine, and each may find news to tell.
        bench.operator.start(LEAD_PROGRESS_SECONDS="3600", LEAD_RESYNC_SECONDS="3600")
        bench.apply(a_dataset_cache("town", "datasets/town"))
        bench.wait_phase("dsc", "town", "Ready", within_s=bench.patience_s)
        bench.apply(a_training_run("drive", "town"))
        bench.wait_phase("trun", "drive", "Succeeded", within_s=bench.patience_s)
        wait_for("the last event", lambda: "Succeeded" in bench.kubectl("get", "events", "-o", "jsonpath={..reason}"))
        writes = bench.proxy.journal.writes(of="drive")
    assert len(writes) <= MAX_WRITES, "\n".join(writes)


@pytest.fixture(scope="module")
def outcomes(
    learned: Learned, control_plane: ControlPlane, minio: MinioServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Outcome]]:
    """The trials of all goals, a few at a time; the faults of one goal that befall one story are tried together."""
    expected = {name: outcome.end for name, outcome in learned.items()}
    plans = {goal: join(choose(goal, learned, count, SEED), TOGETHER) for goal, count in FAULTS.items()}
    together = [plan for of_goal in plans.values() for plan in of_goal]
    found = iter(run_trials(control_plane, minio, tmp_path_factory.mktemp("plans"), together, expected))
    return {goal: [next(found) for _ in of_goal] for goal, of_goal in plans.items()}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("goal", FAULTS)
def test_every_story_comes_to_its_end_through_faults(goal: str, outcomes: dict[str, list[Outcome]]) -> None:
    assert not report(outcomes[goal]), report(outcomes[goal])
    missed = [str(outcome.plan) for outcome in outcomes[goal] if not outcome.fired]
    # A fault near a story's end may lie behind it: how many writes and events there are depends on the machine.
    assert sum(outcome.reached for outcome in outcomes[goal]) >= 0.6 * FAULTS[goal], missed
    if goal == "R1":
        assert sum(outcome.kills for outcome in outcomes[goal]) >= 25


def test_a_plan_is_replayed_from_its_json() -> None:
    plan = Plan("finish", (Fault("stale", 3, "create pods", seconds=1.5, back=2), Fault("hide", 7)), {"A": "b"})
    assert parse_plan(plan.to_json()) == plan
    with pytest.raises(ValueError, match="unknown keys"):
        parse_plan('{"workload": "finish", "fault": []}')
    with pytest.raises(ValueError, match="'explode' is unknown"):
        parse_plan('{"workload": "finish", "faults": [{"kind": "explode"}]}')
