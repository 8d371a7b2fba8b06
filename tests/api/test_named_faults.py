"""Faults that have a name, each at the very call or event that it is about; `test_fault_plans` draws the others."""

import pytest

from lead_testing.kube_faults.goals import Learned
from lead_testing.kube_faults.plan import Fault, Plan
from lead_testing.kube_faults.trial import Outcome, report, run_trials
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
    "etcd slow": Plan("build", (Fault("slow", 1, times=1000, seconds=1.0),)),
    "back in a world without the group that failed": Plan(
        "failing_rank", (Fault("stale", 3, STATUS, seconds=12.0, back=16),)
    ),
    "back in a world without the group that replaced it": Plan(
        "failing_rank", (Fault("stale", 6, PODS, seconds=12.0, back=8),)
    ),
    "the API server answers 503 for a while": Plan("failing_rank", (Fault("outage", 8, seconds=6.0),)),
}  # fmt: skip


@pytest.fixture(scope="module")
def outcomes(
    learned: Learned, control_plane: ControlPlane, minio: MinioServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Outcome]:
    """All of them, a few at a time."""
    expected = {name: outcome.end for name, outcome in learned.items()}
    found = run_trials(control_plane, minio, tmp_path_factory.mktemp("named"), NAMED.values(), expected)
    return dict(zip(NAMED, found, strict=True))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", NAMED)
def test_a_named_fault_changes_nothing(name: str, outcomes: dict[str, Outcome]) -> None:
    assert not report([outcomes[name]]), report([outcomes[name]])
    assert outcomes[name].journal.fired, "the fault was never met: the story has changed"
