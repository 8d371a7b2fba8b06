"""How each goal is tried in a campaign: by plans of faults, or by the model tests."""

import itertools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import seed as with_seed
from hypothesis.stateful import run_state_machine_as_test

from campaign.data_goals import DATA
from campaign.figures import LEAST_KILLS, WANTED, Figures, conclude
from campaign.live.goal import LIVE
from campaign.repeated import REPEATED
from lead_testing.decision_worlds.cache_world import CacheMachine
from lead_testing.decision_worlds.pods_world import PodsMachine
from lead_testing.decision_worlds.run_world import RunMachine, SideBySideMachine
from lead_testing.kube_faults.goals import GOALS, REAL, Learned, as_shipped, choose, kills
from lead_testing.kube_faults.plan import Fault, Plan
from lead_testing.kube_faults.trial import Outcome, report, run_trials
from lead_testing.kube_faults.workloads import WORKLOADS
from lead_testing.local_cluster.control_plane import ControlPlane
from lead_testing.minio_server import MinioServer
from lead_testing.operator_process import CONSTANTS

# An API server that answers 503 (5 minutes are longer than kopf's own patience), and a wire that drops all packets.
DEAFENING = (
    Fault("outage", 8, seconds=60.0), Fault("silence", 8, seconds=300.0), Fault("outage", 8, seconds=300.0),
    Fault("outage", 8, seconds=1200.0),
)  # fmt: skip
STEPS = 50  # of one example of a model test
PORTION = 5_000  # steps after which a model test says how far it is, and begins with another seed

NAMES = (*GOALS, "deaf", "model", *REPEATED, *DATA, LIVE)


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


def try_plans(goal: str, servers: Servers, learned: Learned, count: int, seed: int) -> dict[str, Any]:
    """Runs `count` plans of a goal (0: as many as it wants); prints every violation with the command that replays it.

    R1 goes on with its rows of kills, if it is to be whole, until there were as many kills as the goal asks for.
    """
    plans, started = plans_of(goal, learned, count, seed), time.monotonic()
    outcomes = _play(goal, servers, learned, plans, [])
    while goal == "R1" and not count and 0 < sum(o.kills for o in outcomes) < LEAST_KILLS:
        rows = [plan for row in itertools.islice(kills(learned), len(WORKLOADS)) for plan in row]
        outcomes = _play(goal, servers, learned, rows, outcomes)
    figures: Figures = {"reached": [sum(o.fired for o in outcomes)], "kills": [sum(o.kills for o in outcomes)]}
    for outcome in outcomes:
        for kind, seconds in outcome.heals.items():
            figures.setdefault(f"{kind}_told_after_s", []).extend(seconds)
    return conclude(
        goal, count=count, asked=len(plans), done=len(outcomes), seed=seed, seconds=time.monotonic() - started,
        figures=figures, violations=[o.to_dict() for o in outcomes if o.violations],
        trials=[o.to_dict() for o in outcomes],
    )  # fmt: skip


def _play(goal: str, servers: Servers, learned: Learned, plans: list[Plan], before: list[Outcome]) -> list[Outcome]:
    """Runs plans a few at a time; returns the outcomes of those before and of these."""
    expected = {name: outcome.end for name, outcome in learned.items()}
    outcomes, size = list(before), 4 * servers.side_by_side
    for first in range(0, len(plans), size):
        folder = servers.folder / goal / str(len(outcomes))
        found = run_trials(
            servers.plane, servers.minio, folder, plans[first : first + size], expected, servers.side_by_side
        )
        outcomes += found
        wrong = sum(bool(outcome.violations) for outcome in outcomes)
        print(f"{goal}: {len(outcomes)} of {len(before) + len(plans)} plans, {wrong} with violations", flush=True)
        print(report(found), end="", flush=True)
    return outcomes


def plans_of(goal: str, learned: Learned, count: int, seed: int) -> list[Plan]:
    """Returns the plans of a goal that has some, of real lengths."""
    if goal == "deaf":
        return as_shipped([Plan("failing_rank", (fault,), {CONSTANTS: "{}"}) for fault in DEAFENING[: count or None]])
    plans = choose(goal, learned, count or WANTED[goal], seed, REAL)
    return as_shipped(plans) if goal == "R4" else plans


def try_model(count: int, seed: int) -> dict[str, Any]:
    """Runs the model tests of `decide` for at least `count` steps each (0: as many as the goal wants)."""
    started, found, wanted = time.monotonic(), {}, count or WANTED["model"]
    for machine in (RunMachine, SideBySideMachine, CacheMachine):
        found[machine.__name__] = _steps(machine, wanted, seed)
    steps = {name: entry["steps"] for name, entry in found.items()}
    violations = [{"machine": name, "said": entry["said"]} for name, entry in found.items() if entry["said"]]
    seconds = time.monotonic() - started
    return conclude(
        "model", count=count, asked=wanted, done=min(steps.values()), seed=seed, seconds=seconds, figures={},
        violations=violations, steps=steps,
    )  # fmt: skip


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
