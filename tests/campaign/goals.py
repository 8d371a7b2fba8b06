"""How each goal is tried in a campaign, and what its result file says: seed, counts, violations, each with its plan."""

import itertools
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import seed as with_seed
from hypothesis.stateful import run_state_machine_as_test

from lead_testing import PROJECT_ROOT
from lead_testing.decision_worlds.cache_world import CacheMachine
from lead_testing.decision_worlds.pods_world import PodsMachine
from lead_testing.decision_worlds.run_world import RunMachine, SideBySideMachine
from lead_testing.kube_faults.goals import GOALS, Learned, choose
from lead_testing.kube_faults.plan import Fault, Plan
from lead_testing.kube_faults.trial import Outcome, report, run_trials
from lead_testing.kube_faults.workloads import WORKLOADS
from lead_testing.local_cluster.control_plane import ControlPlane
from lead_testing.minio_server import MinioServer
from lead_testing.operator_process import CONSTANTS

OUTAGES_S = (60.0, 300.0, 1200.0)  # an API server that answers 503: the second is longer than kopf's own patience
STEPS = 50  # of one example of a model test
PORTION = 5_000  # steps after which a model test says how far it is, and begins with another seed

# Goals that are whole tests of the API ring, with how they are made larger: by environment, or by repeating them.
_USERS = "test_what_users_and_administrators_do.py"
_DELETED = "test_a_run_is_deleted_while_the_operator_is_down_and_nothing_is_made_for_it_afterwards"
_ETCD = "test_killed_etcds_and_an_absent_api_server_restart_no_trainer"
REPEATED: dict[str, tuple[str, str]] = {
    "R5": ("test_two_operators.py", ""),
    "R6": ("test_any_spec.py", "LEAD_TEST_SPECS"),
    "R12": (f"test_outages.py::{_ETCD}", "LEAD_TEST_ETCD_KILLS"),
    "R13": ("test_outages.py::test_a_clock_that_jumps_ends_nothing", ""),
    "R15": ("test_many_runs.py", "LEAD_TEST_RUNS"),
    "R16": (f"{_USERS}::test_an_upgraded_operator_restarts_no_trainer", ""),
    "R18": (f"{_USERS}::{_DELETED}", ""),
    "R19": ("test_life_of_a_run.py::test_an_erased_status_is_rebuilt_from_pods_and_bucket", ""),
}
COUNTS = {"R5": 50, "R6": 1500, "R12": 50, "R13": 5, "R15": 1000, "R16": 10, "R18": 10, "R19": 10, "model": 100_000}
NAMES = (*GOALS, "deaf", "model", *REPEATED)


@dataclass(frozen=True)
class Servers:
    """What trials work on."""

    plane: ControlPlane
    minio: MinioServer
    folder: Path
    side_by_side: int


def learn(servers: Servers) -> Learned:
    """Plays every story undisturbed; raises AssertionError where one does not end well."""
    plans = [Plan(name) for name in WORKLOADS]
    outcomes = run_trials(servers.plane, servers.minio, servers.folder / "learn", plans, {}, servers.side_by_side)
    assert not report(outcomes), report(outcomes)
    return {outcome.plan.workload: outcome for outcome in outcomes}


def try_plans(goal: str, servers: Servers, learned: Learned, plans: list[Plan], seed: int) -> dict[str, Any]:
    """Runs the plans of a goal; prints every violation with the command that replays it."""
    expected = {name: outcome.end for name, outcome in learned.items()}
    started = time.monotonic()
    outcomes: list[Outcome] = []
    size = 4 * servers.side_by_side
    for first in range(0, len(plans), size):
        folder = servers.folder / goal / str(first)
        found = run_trials(
            servers.plane, servers.minio, folder, plans[first : first + size], expected, servers.side_by_side
        )
        outcomes += found
        wrong = sum(bool(outcome.violations) for outcome in outcomes)
        print(f"{goal}: {len(outcomes)} of {len(plans)} plans, {wrong} with violations", flush=True)
        print(report(found), end="", flush=True)
    return {
        "goal": goal, "seed": seed, "count": len(outcomes), "reached": sum(o.fired for o in outcomes),
        "kills": sum(o.kills for o in outcomes), "seconds": round(time.monotonic() - started),
        "violations": [o.to_dict() for o in outcomes if o.violations], "trials": [o.to_dict() for o in outcomes],
    }  # fmt: skip


def plans_of(goal: str, learned: Learned, count: int, seed: int) -> list[Plan]:
    """Returns the plans of a goal that has some."""
    if goal != "deaf":
        return choose(goal, learned, count, seed)
    as_shipped = {CONSTANTS: "{}"}
    return [Plan("failing_rank", (Fault("outage", 8, seconds=s),), as_shipped) for s in OUTAGES_S[: count or None]]


def try_model(count: int, seed: int) -> dict[str, Any]:
    """Runs the model tests of `decide` for at least `count` steps each."""
    started, found = time.monotonic(), {}
    for machine in (RunMachine, SideBySideMachine, CacheMachine):
        found[machine.__name__] = _steps(machine, count, seed)
    steps = {name: entry["steps"] for name, entry in found.items()}
    violations = [{"machine": name, "said": entry["said"]} for name, entry in found.items() if entry["said"]]
    seconds = round(time.monotonic() - started)
    return {"goal": "model", "seed": seed, "count": steps, "violations": violations, "seconds": seconds}


def _steps(machine: type[PodsMachine], count: int, seed: int) -> dict[str, Any]:
    machine.steps = 0
    chosen = settings(
        max_examples=max(1, min(count, PORTION) // STEPS), stateful_step_count=STEPS, deadline=None, database=None,
        suppress_health_check=list(HealthCheck), print_blob=True,
    )  # fmt: skip
    for portion in itertools.count():
        if machine.steps >= count:
            break
        try:
            run_state_machine_as_test(with_seed(f"{machine.__name__} {seed} {portion}")(machine), settings=chosen)
        except Exception as error:
            notes = "\n".join(getattr(error, "__notes__", []))
            said = f"portion {portion} of seed {seed}: {type(error).__name__}: {error}\n{notes}"
            return {"steps": machine.steps, "said": said}
        print(f"model: {machine.__name__} {machine.steps} of {count} steps", flush=True)
    return {"steps": machine.steps, "said": ""}


def repeat(goal: str, count: int, seed: int) -> dict[str, Any]:
    """Runs a test of the API ring larger, or again and again."""
    test, variable = REPEATED[goal]
    started, violations = time.monotonic(), []
    times = 1 if variable else count
    for number in range(times):
        environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT / "tests"), "LEAD_TEST_SEED": str(seed)}
        environment |= {variable: str(count)} if variable else {}
        command = [sys.executable, "-m", "pytest", "-q", "--timeout", "9000", f"tests/api/{test}"]
        done = subprocess.run(command, cwd=PROJECT_ROOT, env=environment, capture_output=True, text=True, check=False)
        print(f"{goal}: {number + 1} of {times}, pytest exit {done.returncode}", flush=True)
        if done.returncode:
            violations.append({"plan": {"command": command, variable: count}, "said": done.stdout[-5000:]})
    return {"goal": goal, "seed": seed, "count": count, "violations": violations,
            "seconds": round(time.monotonic() - started)}  # fmt: skip


def write_result(folder: Path, result: dict[str, Any]) -> None:
    """Writes `<goal>.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{result['goal']}.json").write_text(json.dumps(result, indent=1))
