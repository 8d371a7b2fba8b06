"""Somebody deletes the bucket under a live run: the status says so, and all is well once there is one of its name."""

from lead_testing.api_bench import Bench
from lead_testing.kube_faults.truth import Truth
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import wait_for
from lead_testing.statuses import newest_entry


def test_a_bucket_deleted_under_a_live_run_is_reported_and_the_run_goes_on(bench: Bench) -> None:
    bench.driver.script.held.add("pretrain")
    bench.driver.script.held_at = 1
    bench.operator.start()
    with Truth(bench.plane.kubeconfig, bench.namespace) as truth:
        bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town"))
        wait_for("a checkpoint", lambda: newest_entry(bench.status("trun", "drive"))["checkpoint"].get("epoch") == 1)
        trainers = {pod["metadata"]["uid"] for pod in bench.pods()}
        delete_bucket(bench)
        told = wait_for("the loss to be told", lambda: storage(bench).startswith("False") and storage(bench))
        assert bench.namespace in told and "bucket" in told
        status = bench.status("trun", "drive")
        assert (status["phase"], status["stages"][0]["checkpoint"]["epoch"]) == ("Running", 1)

        bench.minio.admin().make_bucket(bench.namespace)
        wait_for("the store to be back", lambda: not storage(bench).startswith("False"))
        assert {pod["metadata"]["uid"] for pod in bench.pods()} == trainers
        bench.driver.script.held.clear()
        done = bench.wait_phase("trun", "drive", "Succeeded", "Failed")
    assert (done["phase"], done["restarts"]["total"], truth.violations) == ("Succeeded", 0, [])
    bench.wait_phase("dsc", "town", "Ready")


def delete_bucket(bench: Bench) -> None:
    admin = bench.minio.admin()
    for found in admin.list_objects(bench.namespace, recursive=True):
        admin.remove_object(bench.namespace, str(found.object_name))
    admin.remove_bucket(bench.namespace)


def storage(bench: Bench) -> str:
    """Returns the run's condition StorageAvailable, empty while it is absent."""
    conditions = bench.status("trun", "drive").get("conditions", [])
    return next((f"{c['status']}: {c['message']}" for c in conditions if c["type"] == "StorageAvailable"), "")
