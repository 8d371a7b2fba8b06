"""A DatasetCache with `retain: Delete` takes its data with it, but never from under a run or another cache."""

from lead_protocol.object_keys import BuildKeys, CacheKeys
from lead_testing.api_bench import Bench
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import wait_for


def objects(bench: Bench, prefix: str) -> list[str]:
    return [info.key for info in bench.store.list(prefix)]


def test_data_of_a_deleted_cache_go_when_the_last_run_has_ended(bench: Bench) -> None:
    bench.driver.script.held.add("pretrain")
    bench.operator.start()
    cache = a_dataset_cache("town", "datasets/town")
    cache["spec"]["retain"] = "Delete"
    bench.apply(cache, a_training_run("drive", "town"))
    digest = bench.wait_phase("dsc", "town", "Ready")["digest"]
    bench.wait_phase("trun", "drive", "Running")
    uid = bench.get("dsc", "town")["metadata"]["uid"]
    bench.kubectl("delete", "dsc", "town", "--wait=false")
    waiting = bench.wait_phase("dsc", "town", "Deleting")
    assert f"TrainingRun {bench.namespace}/drive" in waiting["conditions"][0]["message"]
    bench.operator.kill()  # what a dead operator has not finished, the next one does
    assert CacheKeys(bench.namespace, digest).manifest in objects(bench, CacheKeys(bench.namespace, digest).prefix)
    bench.operator.start()
    bench.driver.script.held.clear()
    assert bench.wait_phase("trun", "drive", "Succeeded", "Failed")["phase"] == "Succeeded"
    wait_for("the cache to be gone", lambda: not bench.get("dsc", "town"))
    assert objects(bench, CacheKeys(bench.namespace, digest).prefix) == []
    assert objects(bench, BuildKeys(bench.namespace, uid).prefix) == []
    assert objects(bench, f"runs/{bench.namespace}/")


def test_a_cache_that_retains_its_data_goes_at_once_without_an_operator(bench: Bench) -> None:
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"))
    digest = bench.wait_phase("dsc", "town", "Ready")["digest"]
    assert not bench.get("dsc", "town")["metadata"].get("finalizers")
    bench.operator.kill()
    bench.kubectl("delete", "dsc", "town", "--timeout=10s")
    assert CacheKeys(bench.namespace, digest).manifest in objects(bench, CacheKeys(bench.namespace, digest).prefix)


def test_a_deleted_cache_keeps_its_data_when_its_owner_sets_retain_again(bench: Bench) -> None:
    bench.driver.script.held.add("pretrain")
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town", retain="Delete"), a_training_run("drive", "town"))
    digest = bench.wait_phase("dsc", "town", "Ready")["digest"]
    bench.wait_phase("trun", "drive", "Running")
    bench.kubectl("delete", "dsc", "town", "--wait=false")
    bench.wait_phase("dsc", "town", "Deleting")
    bench.kubectl("patch", "dsc", "town", "--type=merge", "-p", '{"spec":{"retain":"Retain"}}')
    wait_for("the cache to be gone", lambda: not bench.get("dsc", "town"))
    assert CacheKeys(bench.namespace, digest).manifest in objects(bench, CacheKeys(bench.namespace, digest).prefix)


def test_a_namespace_that_is_being_deleted_is_not_held_up(bench: Bench) -> None:
    """No namespace controller runs here: the finalizer is what would hold it up."""
    bench.operator.start()
    cache = a_dataset_cache("town", "datasets/town")
    cache["spec"]["retain"] = "Delete"
    bench.apply(cache)
    digest = bench.wait_phase("dsc", "town", "Ready")["digest"]
    assert bench.get("dsc", "town")["metadata"]["finalizers"] == ["lead.dev/cache-data"]
    bench.minio.stop()
    try:
        bench.plane.kubectl("delete", "namespace", bench.namespace, "--wait=false")
        bench.kubectl("delete", "dsc", "town", "--wait=false")
        wait_for("the cache to be gone", lambda: not bench.get("dsc", "town"))
        wait_for("what is left to be named", lambda: "cache_data_left" in bench.operator.log.read_text())
    finally:
        bench.minio.start()
    assert CacheKeys(bench.namespace, digest).prefix in bench.operator.log.read_text()
