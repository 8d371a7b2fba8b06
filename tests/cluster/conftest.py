"""The cluster ring: a real Kubernetes, the images, and the chart in a namespace that enforces `restricted`."""

import uuid
from collections.abc import Iterator

import pytest

from lead_testing.installed import Installed, fresh_namespace, helm, uninstall
from lead_testing.local_cluster import Cluster, build_images, cluster_for_tests


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
    """The chart, installed in a fresh namespace that enforces the restricted pod security standard."""
    namespace = f"lead-test-{uuid.uuid4().hex[:6]}"
    release = fresh_namespace(cluster, namespace)
    helm(release, "install", images)
    yield release
    uninstall(release)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Adds the state of the namespace to the report of a failed test."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    release = getattr(item, "funcargs", {}).get("installed")
    if report.when == "call" and report.failed and release is not None:
        report.sections.append(("state of the namespace", release.describe_everything()))
