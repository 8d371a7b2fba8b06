"""The chart's life on a real cluster: install, upgrade, uninstall, and what must outlive each."""

import uuid
from pathlib import Path

from lead_testing.installed import Installed, fresh_namespace, helm, uninstall, upload_tree
from lead_testing.live_runs import epoch_of
from lead_testing.local_cluster import Cluster
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_trainer.example_worlds.lead.tree import write_example_tree


def test_credentials_and_data_outlive_an_upgrade_and_the_data_and_live_runs_outlive_an_uninstall(
    cluster: Cluster, images: dict[str, str], tmp_path: Path
) -> None:
    release = fresh_namespace(cluster, f"lead-life-{uuid.uuid4().hex[:6]}")
    try:
        helm(release, "install", images)
        before = release.root_credentials()
        with release.store() as store:
            store.put("datasets/kept/file", b"kept")
        pod = a_live_run(release, "long", tmp_path)
        helm(release, "upgrade", images, "operator.logLevel=DEBUG")
        assert release.root_credentials() == before
        with release.store() as store:
            assert store.get("datasets/kept/file", max_bytes=10) == b"kept"
        release.run("helm", "uninstall", "lead", "--wait")
        assert release.items("persistentvolumeclaims"), "uninstall must not delete the object store's claim"
        assert release.items("deployments") == []
        assert running(release, "long") == [pod]
        helm(release, "install", images)
        with release.store() as store:
            assert store.get("datasets/kept/file", max_bytes=10) == b"kept"
        epoch = epoch_of(release, "long")
        release.wait_for("an epoch after it", lambda: epoch_of(release, "long") > epoch, deadline_s=300)
    finally:
        uninstall(release)


def a_live_run(release: Installed, name: str, folder: Path) -> str:
    """Begins a run that commits each of very many epochs; returns its pod's UID once it trains."""
    write_example_tree(folder / "tree", routes=1, frames=10, seed=1, failed_routes=0)
    with release.store() as store:
        upload_tree(store, folder / "tree", "datasets/one-route")
    cache = a_dataset_cache("one-route", "datasets/one-route", collections=["full_pretrain"])
    stages = [{"name": "pretrain", "epochs": 10_000}]
    release.apply(cache, a_training_run(name, "one-route", nodes=1, stages=stages))
    release.wait_for("an epoch", lambda: epoch_of(release, name), deadline_s=600)
    (pod,) = running(release, name)
    return pod


def running(release: Installed, run: str) -> list[str]:
    """Returns the UIDs of a run's pods that run."""
    pods = release.items("pods", f"lead.dev/run={run}")
    return [str(pod["metadata"]["uid"]) for pod in pods if pod["status"].get("phase") == "Running"]
