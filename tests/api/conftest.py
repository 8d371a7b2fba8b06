"""One etcd, one API server and one MinIO for all API tests; a namespace, a bucket, a node and an operator for each.

There is no kubelet and no controller: `lead_testing.pod_driver` plays the pods' part.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lead_testing import PROJECT_ROOT
from lead_testing.api_bench import Bench, open_bench
from lead_testing.kube_faults.goals import Learned
from lead_testing.kube_faults.plan import Plan
from lead_testing.kube_faults.trial import report, run_trials
from lead_testing.kube_faults.workloads import WORKLOADS
from lead_testing.local_cluster.control_plane import ControlPlane
from lead_testing.local_cluster.errors import CannotRun
from lead_testing.longest_first import put_longest_first
from lead_testing.minio_server import MinioServer, minio_program

# Files that take minutes each.
LONGEST_FIRST = ("test_fault_plans", "test_many_runs", "test_forged_manifests_live", "test_poison_objects",
                 "test_named_faults", "test_outages", "test_gitops", "test_dashboard_and_alerts")  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the files that take longest first; the others keep their order."""
    put_longest_first(items, LONGEST_FIRST)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A real API server with both CRDs."""
    try:
        plane = ControlPlane(tmp_path_factory.mktemp("control-plane"))
    except CannotRun as reason:
        pytest.skip(f"the API server cannot be started here: {reason}")
    with plane:
        crds = [str(PROJECT_ROOT / "crds" / f"{name}.yaml") for name in ("trainingrun", "datasetcache")]
        plane.kubectl("apply", "--server-side", "-f", crds[0], "-f", crds[1])
        plane.kubectl("wait", "--for=condition=Established", "crd/trainingruns.lead.dev", "crd/datasetcaches.lead.dev")
        for kind in ("trainingruns", "datasetcaches"):  # from the watch cache, which answers 429 until it is filled
            plane.kubectl("get", "--raw", f"/apis/lead.dev/v1alpha1/{kind}?resourceVersion=0")
        yield plane


@pytest.fixture(scope="session")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MinioServer]:
    """A real MinIO."""
    with MinioServer(minio_program(), tmp_path_factory.mktemp("minio")) as server:
        yield server


@pytest.fixture
def bench(control_plane: ControlPlane, minio: MinioServer, tmp_path: Path) -> Iterator[Bench]:
    """A namespace, a bucket, a healthy node, moving pods, and an operator that the test starts."""
    with open_bench(control_plane, minio, tmp_path) as bench:
        yield bench


@pytest.fixture(scope="session")
def learned(control_plane: ControlPlane, minio: MinioServer, tmp_path_factory: pytest.TempPathFactory) -> Learned:
    """Every story of the fault trials, undisturbed: its end, its writes, its events."""
    plans = [Plan(name) for name in WORKLOADS]
    outcomes = run_trials(control_plane, minio, tmp_path_factory.mktemp("learned"), plans, {})
    assert not report(outcomes), report(outcomes)
    return {outcome.plan.workload: outcome for outcome in outcomes}
