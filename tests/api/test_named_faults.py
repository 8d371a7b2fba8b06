"""Faults that have a name, each at the very call or event that it is about; `test_fault_plans` draws the others."""

from pathlib import Path
from typing import Any

import pytest

from lead_testing.kube_faults.plan import Fault, Plan
from lead_testing.kube_faults.trial import report, run_trial, run_trials
from lead_testing.local_cluster.control_plane import ControlPlane
from lead_testing.minio_server import MinioServer

STATUS, PODS = "patch trainingruns/status", "create pods"
NAMED = {
    "killed between status bump and pod create": Plan("failing_rank", (Fault("kill", 2, STATUS),)),
    "killed after one of two pods": Plan("failing_rank", (Fault("kill", 3, PODS),)),
    "killed in the middle of a suspension": Plan("edit", (Fault("kill", 1, "delete pods"),)),
    "killed between two stages": Plan("finish", (Fault("kill", 5, PODS),)),
    "410 while pods change": Plan("failing_rank", (Fault("gone", 2, "pods", times=6),)),
    "the answer of a create that succeeded is lost": Plan("failing_rank", (Fault("lost-answer", 3, PODS, times=4),)),
    "500 on creates": Plan("failing_rank", (Fault("error", 3, PODS, times=8),)),
    "409 on status": Plan("failing_rank", (Fault("conflict", 2, STATUS, times=3),)),
    "etcd slow": Plan("build", (Fault("slow", 1, times=1000, seconds=2.0),)),
    "the API server answers 503 for a while": Plan("failing_rank", (Fault("outage", 8, seconds=14.0),)),
}  # fmt: skip


@pytest.fixture(scope="module")
def ends(
    control_plane: ControlPlane, minio: MinioServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """The end of each story without a fault."""
    plans = [Plan(name) for name in sorted({plan.workload for plan in NAMED.values()})]
    outcomes = run_trials(control_plane, minio, tmp_path_factory.mktemp("ends"), plans, {})
    assert not report(outcomes), report(outcomes)
    return {outcome.plan.workload: outcome.end for outcome in outcomes}


@pytest.mark.parametrize("name", NAMED)
def test_a_named_fault_changes_nothing(
    name: str, ends: dict[str, dict[str, Any]], control_plane: ControlPlane, minio: MinioServer, tmp_path: Path
) -> None:
    plan = NAMED[name]
    outcome = run_trial(control_plane, minio, tmp_path, plan, ends[plan.workload])
    assert not report([outcome]), report([outcome])
    assert outcome.journal.fired, "the fault was never met: the story has changed"
