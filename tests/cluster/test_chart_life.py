"""The chart's life on a real cluster: install, upgrade, uninstall, and what must outlive each."""

import uuid

from lead_testing.installed import fresh_namespace, helm, uninstall
from lead_testing.local_cluster import Cluster


def test_credentials_and_data_outlive_an_upgrade_and_the_data_outlives_an_uninstall(
    cluster: Cluster, images: dict[str, str]
) -> None:
    release = fresh_namespace(cluster, f"lead-life-{uuid.uuid4().hex[:6]}")
    try:
        helm(release, "install", images)
        before = release.root_credentials()
        with release.store() as store:
            store.put("datasets/kept/file", b"kept")
        helm(release, "upgrade", images, "operator.logLevel=DEBUG")
        assert release.root_credentials() == before
        with release.store() as store:
            assert store.get("datasets/kept/file", max_bytes=10) == b"kept"
        release.run("helm", "uninstall", "lead", "--wait")
        assert release.items("persistentvolumeclaims"), "uninstall must not delete the object store's claim"
        assert release.items("deployments") == []
        helm(release, "install", images)
        with release.store() as store:
            assert store.get("datasets/kept/file", max_bytes=10) == b"kept"
    finally:
        uninstall(release)
