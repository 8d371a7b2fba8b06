"""Goals that are whole tests of the API ring, made larger by their environment or played again and again."""

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaign.figures import WANTED, conclude
from lead_testing import PROJECT_ROOT
from lead_testing.figures import FILE, read_figures

LIMIT_S = 9000  # of one pytest: a goal's 150 minutes
_USERS = "test_what_users_and_administrators_do.py"


@dataclass(frozen=True)
class Repeated:
    """Tests of one goal, made larger by variables of their environment, or else played in rounds."""

    tests: tuple[str, ...]
    sized_by: dict[str, int] = field(default_factory=dict)  # variable -> of how many that the goal counts it is one
    counted: str = ""  # then: the figure that tells how many were done
    environment: dict[str, str] = field(default_factory=dict)
    cases: int = 1  # of one round, which the goal counts


REPEATED = {
    "R5": Repeated(
        (
            "test_two_operators.py::test_two_operators_without_a_lease_make_nothing_twice",
            "test_two_operators.py::test_a_frozen_leader_that_wakes_up_does_no_harm",
            "test_operator_deaths.py::test_of_two_operators_one_acts_and_the_other_takes_over",
        ),
        environment={"LEAD_TEST_FROZEN_S": "60"},
        cases=3,
    ),
    "R6": Repeated(("test_any_spec.py",), {"LEAD_TEST_SPECS": 1, "LEAD_TEST_CHAINS": 5}, "states"),
    "R12": Repeated(
        (
            "test_outages.py::test_killed_etcds_and_an_absent_api_server_restart_no_trainer",
            "test_outages.py::test_an_etcd_restored_to_an_older_revision_begins_no_attempt_twice",
        ),
        {"LEAD_TEST_ETCD_KILLS": 1},
        "etcd_kills",
        environment={"LEAD_TEST_AWAY_S": "600"},
    ),
    "R13": Repeated(
        (
            "test_outages.py::test_a_clock_that_jumps_ends_nothing",
            "test_outages.py::test_a_trainer_whose_clock_is_wrong_is_neither_hung_nor_late",
        ),
        cases=6,
    ),
    "R15": Repeated(("test_many_runs.py",), {"LEAD_TEST_RUNS": 1}, "runs"),
    "R16": Repeated((f"{_USERS}::test_an_upgraded_operator_restarts_no_trainer",)),
    "R18": Repeated((f"{_USERS}::test_a_run_deleted_while_the_operator_is_down_has_nothing_made_for_it",)),
    "R19": Repeated(("test_life_of_a_run.py::test_an_erased_status_is_rebuilt_from_pods_and_bucket",)),
}


def repeat(goal: str, count: int, seed: int) -> dict[str, Any]:
    """Plays a goal's tests until `count` of what it counts are done (0: as many as it wants)."""
    entry, asked = REPEATED[goal], count or WANTED[goal]
    started, violations, cases = time.monotonic(), list[dict[str, Any]](), 0
    rounds = 1 if entry.sized_by else -(-asked // entry.cases)
    set_here = {name: str(max(1, asked // size)) for name, size in entry.sized_by.items()}
    set_here |= {**entry.environment, "LEAD_TEST_SEED": str(seed)}
    with tempfile.TemporaryDirectory(prefix="lead-figures-") as folder:
        file = Path(folder) / "figures.jsonl"
        environment = {**os.environ, **set_here, FILE: str(file), "PYTHONPATH": str(PROJECT_ROOT / "tests")}
        for number in range(rounds):
            done, passed = _play(entry, environment, Path(folder) / "cases.xml")
            cases += passed
            print(f"{goal}: {number + 1} of {rounds}, pytest exit {done.returncode}", flush=True)
            if done.returncode:
                violations.append({"plan": {"command": done.args, **set_here}, "said": done.stdout[-5000:]})
        figures = read_figures(file)
    return conclude(
        goal, count=count, asked=asked, done=int(sum(figures.get(entry.counted, []))) if entry.sized_by else cases,
        seed=seed, seconds=time.monotonic() - started, figures=figures, violations=violations,
    )  # fmt: skip


def _play(entry: Repeated, environment: dict[str, str], cases: Path) -> tuple[subprocess.CompletedProcess[str], int]:
    """Runs pytest once; returns it and how many cases have passed."""
    tests = [f"tests/api/{test}" for test in entry.tests]
    command = [sys.executable, "-m", "pytest", "-q", "--timeout", str(LIMIT_S), f"--junitxml={cases}", *tests]
    done = subprocess.run(command, cwd=PROJECT_ROOT, env=environment, capture_output=True, text=True, check=False)
    if not cases.exists():
        return done, 0
    suite = ET.parse(cases).getroot()
    found = [case for case in suite.iter("testcase") if not list(case)]  # a failure or a skip is a child
    cases.unlink()
    return done, len(found)
