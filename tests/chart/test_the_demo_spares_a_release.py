"""`make demo` and a release `lead` that is there already: somebody else's is left as it is, its own is gone on with."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lead_testing import PROJECT_ROOT, demo
from lead_testing.local_cluster import Cluster
from lead_testing.local_cluster.control_plane import ControlPlane

OWN = ("--labels", f"{demo.OWN_RELEASE}=true")


@pytest.fixture
def cluster(server: ControlPlane, helm_program: Path) -> Iterator[Cluster]:
    """A cluster of the user's own, in whose default namespace each test installs a release."""
    yield (own := Cluster("current", server.kubeconfig, helm_program.parent, None))
    demo.call(own, ["helm", "uninstall", "lead", "--ignore-not-found"])


def test_a_release_that_somebody_else_installed_is_refused_with_its_namespace(cluster: Cluster) -> None:
    demo.call(cluster, ["helm", "install", "lead", "charts/lead"])
    with pytest.raises(demo.DemoFailed, match=r"^namespace default of .* not marked as the demo's own") as refused:
        demo.refuse_release_of_others(cluster)
    assert "older demo" in str(refused.value) and "`helm uninstall lead -n default`" in str(refused.value)


def test_the_demos_own_release_is_gone_on_with(cluster: Cluster) -> None:
    demo.call(cluster, ["helm", "install", "lead", "charts/lead", *OWN])
    demo.refuse_release_of_others(cluster)
    demo.forget_interrupted_install(cluster)
    assert [found["status"] for found in demo.releases(cluster)] == ["deployed"]


def test_an_install_of_its_own_that_was_cut_off_is_forgotten(cluster: Cluster) -> None:
    words = demo.command(cluster, ["helm", "install", "lead", "charts/lead", *OWN, "--wait"])
    with subprocess.Popen(words, cwd=PROJECT_ROOT, env=cluster.environment()) as install:
        while not demo.releases(cluster):
            assert install.poll() is None
        install.kill()
    assert [found["status"] for found in demo.releases(cluster)] == ["pending-install"]
    demo.refuse_release_of_others(cluster)
    demo.forget_interrupted_install(cluster)
    assert demo.releases(cluster) == []
