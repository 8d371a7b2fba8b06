"""What `make cluster-down` leaves: nothing. Runs with LEAD_TEST_CLUSTER_DOWN=1: other tests share the cluster."""

import os

import pytest

from lead_testing.local_cluster import Home, cluster, delete, ensure_up

pytestmark = pytest.mark.skipif(
    os.environ.get("LEAD_TEST_CLUSTER_DOWN") != "1" or os.environ.get("LEAD_CLUSTER", "local") != "local",
    reason="stops the cluster that other tests share; LEAD_TEST_CLUSTER_DOWN=1 runs it",
)


def test_down_leaves_nothing_behind_and_up_brings_it_back() -> None:
    home = Home.from_environment()
    ensure_up(home)
    assert {part.state for part in cluster.status(home, home.cluster)} == {"healthy"}
    delete(home)
    assert cluster.remnants(home.cluster) == []
    assert cluster.status(home, home.cluster) == []
    ensure_up(home)
    assert {part.state for part in cluster.status(home, home.cluster)} == {"healthy"}
