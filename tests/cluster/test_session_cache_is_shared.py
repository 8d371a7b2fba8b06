"""Two runs on one node read one session cache; a volume wiped under a running pod is a condition and no stop."""

from typing import Any

import pytest

from lead_protocol.environment import SESSION_CACHE_DIR
from lead_protocol.object_keys import CacheKeys
from lead_testing.installed import Installed, conditions, upload_tree
from lead_testing.live_runs import epoch_of, live_pod
from lead_testing.local_cluster import Home
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_trainer.data.water_marks import HIGH, room_bytes
from lead_trainer.example_worlds.lead.tree import write_example_tree

SHARED = {
    "medium": "PersistentVolume",
    "sharedClaimName": "towns",
    "storageClassName": "lead-local",
    "sizeLimit": "1Gi",
}
DEGRADED = "SessionCacheDegraded"
WIPE = f"import shutil, os; [shutil.rmtree(e.path) for e in os.scandir({SESSION_CACHE_DIR!r}) if e.is_dir()]"
LONG = {"stages": [{"name": "pretrain", "epochs": 10_000}], "checkpoint": {"everyEpochs": 10_000, "everySteps": 200}}


@pytest.fixture(scope="module")
def cache(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The status of a small DatasetCache that is Ready, where session caches have room on the node's disk."""
    home = Home.from_environment().root
    assert room_bytes(home, HIGH) > 2**30, f"session caches fill a disk to {HIGH.of_volume:.0%}: free some below {home}"
    tree = tmp_path_factory.mktemp("example")
    write_example_tree(tree, routes=1, frames=10, seed=1, failed_routes=0)
    with installed.store() as store:
        upload_tree(store, tree, "datasets/one-route")
    installed.apply(a_dataset_cache("one-route", "datasets/one-route", collections=["full_pretrain"]))
    return installed.wait_for_phase("datasetcache", "one-route", "Ready", deadline_s=600)


@pytest.fixture(scope="module")
def first(installed: Installed, cache: dict[str, Any]) -> str:
    """The name of a run that has filled the claim and trains on and on."""
    installed.apply(a_training_run("first", "one-route", nodes=1, sessionCache=SHARED, **LONG))
    installed.wait_for("an epoch of the first run", lambda: epoch_of(installed, "first"), deadline_s=600)
    return "first"


def test_a_second_run_on_the_node_needs_no_shard_of_the_store(
    installed: Installed, cache: dict[str, Any], first: str
) -> None:
    keys = CacheKeys(installed.namespace, cache["digest"])
    taken = {}
    with installed.store() as store:
        for info in [*store.list(f"{keys.prefix}shards/"), *store.list(f"{keys.prefix}metas/")]:
            taken[info.key] = store.get(info.key, max_bytes=2**28)
            store.delete(info.key)
    assert taken
    try:
        run = a_training_run("second", "one-route", nodes=1, sessionCache=SHARED)
        installed.apply(run)
        status = installed.wait_for_phase("trainingrun", "second", "Succeeded", deadline_s=600)
    finally:
        with installed.store() as store:
            for key, data in taken.items():
                store.put(key, data)
    assert status["display"]["cacheHits"] == "100%"
    assert DEGRADED not in conditions(status)
    claims = {
        c["metadata"]["name"]: c["status"]["phase"] for c in installed.items("pvc", "lead.dev/shared-claim=towns")
    }
    assert claims == {"towns-shared-0": "Bound"}
    assert epoch_of(installed, first) > 0


def test_a_wiped_volume_is_told_and_filled_again_while_training_goes_on(installed: Installed, first: str) -> None:
    pod = live_pod(installed, first, rank=0)
    done = installed.run("kubectl", "exec", pod, "--", "python3", "-c", WIPE)
    assert done.returncode == 0, done.stderr
    told = installed.wait_for(f"condition {DEGRADED}", lambda: condition(installed, first), deadline_s=120)
    assert told.startswith("True")
    epoch = epoch_of(installed, first)
    installed.wait_for("another epoch", lambda: epoch_of(installed, first) > epoch, deadline_s=120)
    installed.wait_for(f"{DEGRADED} to go", lambda: not condition(installed, first), deadline_s=300)
    status = installed.status("trainingrun", first)
    assert (status["phase"], status["restarts"]["total"], live_pod(installed, first, rank=0)) == ("Running", 0, pod)
    listing = installed.kubectl("exec", pod, "--", "ls", f"{SESSION_CACHE_DIR}/shards")
    assert listing.split()
    installed.kubectl("delete", "trainingrun", first, "--wait")


def condition(installed: Installed, run: str) -> str:
    """Returns the condition on the session cache, empty while it is absent."""
    return conditions(installed.status("trainingrun", run)).get(DEGRADED, "")
