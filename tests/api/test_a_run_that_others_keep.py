"""A run that is deleted and that a finalizer of somebody else keeps: its pods are stopped, and nothing new is made."""

from lead_testing.api_bench import Bench
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import wait_for

KEEP = '{"metadata":{"finalizers":["example.com/audit"]}}'


def test_it_trains_no_more(bench: Bench) -> None:
    bench.driver.script.held.add("pretrain")
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town"))
    bench.wait_phase("trun", "drive", "Running")
    bench.kubectl("patch", "trun", "drive", "--type=merge", "-p", KEEP)
    bench.kubectl("delete", "trun", "drive", "--wait=false")
    wait_for("its pods to be gone", lambda: bench.pods() == [])
    assert "deletionTimestamp" in bench.get("trun", "drive")["metadata"]
    bench.kubectl("patch", "trun", "drive", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    wait_for("the run to be gone", lambda: bench.items("trun") == [])
    assert bench.pods() == []


def test_pods_stay_where_whoever_deletes_it_asks_for_that(bench: Bench) -> None:
    bench.driver.script.held.add("pretrain")
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town"))
    bench.wait_phase("trun", "drive", "Running")
    bench.kubectl("delete", "trun", "drive", "--wait=false", "--cascade=orphan")
    assert "orphan" in bench.get("trun", "drive")["metadata"]["finalizers"]
    looks = bench.operator.looks()
    wait_for("looks at it", lambda: bench.operator.looks() > looks)
    assert [p for p in bench.pods() if "deletionTimestamp" not in p["metadata"]]
