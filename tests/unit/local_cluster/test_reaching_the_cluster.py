"""How kubectl and helm reach a cluster from behind a proxy."""

from pathlib import Path

import pytest

from lead_testing import demo
from lead_testing.local_cluster import Cluster, Home
from lead_testing.local_cluster.addresses import NODE_ADDRESS
from lead_testing.local_cluster.binaries import program_path
from lead_testing.local_cluster.cluster import kubectl_argv
from lead_testing.local_cluster.commands import read_output
from lead_testing.local_cluster.which_cluster import ClusterKind

PROXY = {"HTTPS_PROXY": "http://proxy.example:3128"}


@pytest.fixture
def behind_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "near.example")
    monkeypatch.delenv("no_proxy", raising=False)


def a_cluster(kind: ClusterKind, folder: Path) -> Cluster:
    return Cluster(kind, folder / "kubeconfig", folder / "bin", None)


def a_kubectl(path: Path) -> None:
    """Writes a program that prints which addresses it would ask without the proxy."""
    path.parent.mkdir(parents=True)
    path.write_text('#!/bin/sh\necho "spared: $NO_PROXY"\n')
    path.chmod(0o755)


@pytest.mark.usefixtures("behind_a_proxy")
def test_the_start_asks_the_node_without_the_proxy(tmp_path: Path) -> None:
    home = Home(tmp_path)
    a_kubectl(program_path(home, "kubectl"))
    assert read_output([*kubectl_argv(home, tmp_path), "get", "nodes"]) == f"spared: {NODE_ADDRESS}\n"


@pytest.mark.usefixtures("behind_a_proxy")
def test_the_demo_asks_the_node_without_the_proxy(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    a_kubectl(tmp_path / "bin" / "kubectl")
    demo.call(a_cluster("local", tmp_path), ["kubectl", "get", "nodes"])
    assert f"spared: near.example,{NODE_ADDRESS}" in capfd.readouterr().out


@pytest.mark.usefixtures("behind_a_proxy")
def test_the_line_for_a_shell_spares_the_node_too(tmp_path: Path) -> None:
    assert a_cluster("local", tmp_path).export_line() == (
        f"export KUBECONFIG={tmp_path}/kubeconfig NO_PROXY=near.example,{NODE_ADDRESS} PATH={tmp_path}/bin:$PATH"
    )


@pytest.mark.parametrize(
    ("kind", "environment", "spared"),
    [
        ("local", {}, None),
        ("local", PROXY, NODE_ADDRESS),
        ("local", {"https_proxy": "http://proxy.example:3128", "no_proxy": "a,b"}, f"a,b,{NODE_ADDRESS}"),
        ("kind", PROXY, None),
        ("current", PROXY, None),
    ],
)
def test_only_a_proxy_before_the_local_cluster_is_passed_by(
    kind: ClusterKind, environment: dict[str, str], spared: str | None, tmp_path: Path
) -> None:
    assert a_cluster(kind, tmp_path).variables(environment).get("NO_PROXY") == spared
