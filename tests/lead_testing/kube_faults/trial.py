"""One workload under one plan on a bench of its own, judged: what was violated, and what it came to."""

import json
import time
import traceback
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lead_testing.api_bench import open_bench
from lead_testing.kube_faults.journal import Journal
from lead_testing.kube_faults.kubelet import Kubelet
from lead_testing.kube_faults.plan import Plan
from lead_testing.kube_faults.truth import Truth
from lead_testing.kube_faults.workloads import WORKLOADS, describe_end
from lead_testing.local_cluster.control_plane import ControlPlane
from lead_testing.minio_server import MinioServer
from lead_testing.operator_process import CONSTANTS, PATIENT, wait_for

# What heals a fault is shortened. What ends a process that is merely slow is made long: a crowded machine is no fault.
SETTINGS = {
    "LEAD_RESYNC_SECONDS": "4",
    "LEAD_RELIST_SECONDS": "4",
    CONSTANTS: json.dumps({**PATIENT, "lead_operator.kube.client.WATCH_GRACE_S": 8.0}),
}
PATIENCE_S = 600.0
REST_LOOKS = 6  # half a second apart: what a starved thread does last is seen


@dataclass
class Outcome:
    """What one trial came to."""

    plan: Plan
    violations: list[str] = field(default_factory=list)
    end: dict[str, Any] = field(default_factory=dict)
    journal: Journal = field(default_factory=Journal)
    heals: dict[str, list[float]] = field(default_factory=dict)  # kind of fault -> seconds until all was told
    kills: int = 0
    exits: list[int] = field(default_factory=list)
    seconds: float = 0.0
    log: str = ""

    @property
    def reached(self) -> int:
        """How many faults of the plan were met."""
        return len({str(f) for f in self.plan.faults} & {str(f) for f in self.journal.fired})

    @property
    def fired(self) -> bool:
        """Tells whether every fault of the plan was met."""
        return self.reached == len(set(map(str, self.plan.faults)))

    def to_dict(self) -> dict[str, Any]:
        """Returns what a result file keeps of the trial."""
        return {"plan": asdict(self.plan), "violations": self.violations, "fired": self.fired, "kills": self.kills,
                "exits": self.exits, "heals": self.heals, "seconds": round(self.seconds, 1)}  # fmt: skip


def run_trial(
    plane: ControlPlane, minio: MinioServer, folder: Path, plan: Plan, expected: dict[str, Any] | None = None
) -> Outcome:
    """Plays the plan's workload through its faults; `expected` is the end of the same workload without any."""
    outcome, started = Outcome(plan), time.monotonic()
    with open_bench(plane, minio, folder, plan) as bench:
        assert bench.proxy is not None
        kubelet = Kubelet(bench.operator, {**SETTINGS, **plan.settings})
        bench.proxy.kill = kubelet.kill
        bench.patience_s = PATIENCE_S + sum(fault.seconds * min(fault.times, 100) for fault in plan.faults)
        with Truth(plane.kubeconfig, bench.namespace) as truth, kubelet:
            try:
                WORKLOADS[plan.workload](bench)
                if expected is None:
                    ends: list[dict[str, Any]] = []
                    wait_for(
                        "the end to be at rest", lambda: _rests(bench, ends), within_s=bench.patience_s, poll_s=0.5
                    )
                    outcome.end = ends[-1]
                else:
                    wait_for(
                        "the end", lambda: _equals(bench, outcome, expected), within_s=bench.patience_s, poll_s=0.5
                    )
            except AssertionError as late:
                wrong = _difference(outcome.end, expected) if expected and outcome.end else ""
                outcome.violations.append(f"{late}{wrong}")
            except Exception:
                outcome.violations.append(traceback.format_exc())
        outcome.violations += truth.violations
        outcome.violations += [f"the pods' driver broke: {error!r}" for error in bench.driver.errors]
        bench.driver.errors.clear()
        outcome.journal, outcome.kills, outcome.exits = bench.proxy.journal, kubelet.kills, kubelet.exits
        outcome.heals = {kind: [round(s, 2) for s in all_s] for kind, all_s in bench.proxy.healing.seconds.items()}
        if outcome.violations:
            outcome.log = bench.operator.log.read_text(errors="replace")
    outcome.seconds = time.monotonic() - started
    return outcome


def run_trials(
    plane: ControlPlane,
    minio: MinioServer,
    folder: Path,
    plans: Iterable[Plan],
    expected: dict[str, dict[str, Any]],
    side_by_side: int = 4,
) -> list[Outcome]:
    """Runs many trials, a few at a time: each waits more than it works."""

    def one(numbered: tuple[int, Plan]) -> Outcome:
        number, plan = numbered
        return run_trial(plane, minio, folder / str(number), plan, expected.get(plan.workload))

    with ThreadPoolExecutor(side_by_side) as pool:
        return list(pool.map(one, enumerate(plans)))


def report(outcomes: list[Outcome]) -> str:
    """Returns each violation with its plan, the command that replays it, and the last of the operator's log."""
    parts = []
    for outcome in outcomes:
        if outcome.violations:
            said = "\n  ".join(outcome.violations)
            replay = f"make campaign ARGS='--replay {json.dumps(outcome.plan.to_json())}'"
            parts.append(f"{outcome.plan}\n  {said}\n  replay: {replay}\n  log:\n{_last_lines(outcome.log)}")
    return "\n\n".join(parts)


def _last_lines(log: str) -> str:
    return "\n".join("    " + line[:300] for line in log.splitlines()[-8:])


def _rests(bench: Any, ends: list[dict[str, Any]]) -> bool:
    """Looks once more; the last thing an operator does by itself is to look at a cache's source."""
    ends.append(describe_end(bench))
    looked = all("SourceDrift" in str(cache["conditions"]) for cache in ends[-1]["caches"].values())
    return looked and len(ends) >= REST_LOOKS and all(end == ends[-1] for end in ends[-REST_LOOKS:])


def _equals(bench: Any, outcome: Outcome, expected: dict[str, Any]) -> bool:
    outcome.end = describe_end(bench)
    return outcome.end == expected


def _difference(found: dict[str, Any], expected: dict[str, Any]) -> str:
    return "".join(
        f"\n  {key}: found {json.dumps(found.get(key))}\n  {key}: expected {json.dumps(expected.get(key))}"
        for key in expected
        if found.get(key) != expected.get(key)
    )
