"""The cluster ring: a real Kubernetes, the images, and the chart in a namespace that enforces `restricted`."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lead_testing import REFERENCE
from lead_testing.installed import Installed, fresh_namespace, helm, uninstall
from lead_testing.local_cluster import Cluster, build_images, cluster_for_tests
from lead_testing.longest_first import put_longest_first
from lead_trainer.example_worlds.lead.tree import write_example_tree

# Files that take minutes each.
LONGEST_FIRST = ("test_staged_seeds", "test_two_tenants", "test_rotation_under_live_runs", "test_main_job",
                 "test_pods_taken_away", "test_bad_input", "test_chart_life")  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the files that take longest first; the others keep their order."""
    put_longest_first(items, LONGEST_FIRST)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A running cluster: the one that is up, or one of its own for this session."""
    with cluster_for_tests() as running:
        yield running


@pytest.fixture(scope="session")
def images(cluster: Cluster) -> dict[str, str]:
    """References of the operator, trainer and object-store images, built from this checkout."""
    return build_images(cluster)


@pytest.fixture(scope="session")
def installed(cluster: Cluster, images: dict[str, str]) -> Iterator[Installed]:
    """The chart with its page, installed in a fresh namespace that enforces the restricted pod security standard."""
    namespace = f"lead-test-{uuid.uuid4().hex[:6]}"
    release = fresh_namespace(cluster, namespace)
    helm(release, "install", images, "ui.enabled=true")
    yield release
    uninstall(release)


@pytest.fixture(scope="session")
def lead_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LEAD tree that this project did not write; a generated one where the reference values are absent."""
    tree = REFERENCE / "golden/lead_data/carla_leaderboard2"
    if not tree.is_dir():
        tree = tmp_path_factory.mktemp("lead") / "tree"
        write_example_tree(tree, routes=4, frames=24, seed=1)
    return tree


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Adds the state of the namespace to the report of a failed test."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    release = getattr(item, "funcargs", {}).get("installed")
    if report.when == "call" and report.failed and release is not None:
        report.sections.append(("state of the namespace", release.describe_everything()))
