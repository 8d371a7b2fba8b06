"""A DatasetCache with `retain: Delete` takes its data with it, but never from under a run or another cache."""

import json

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


def test_a_cache_created_again_is_not_ready_on_missing_or_damaged_objects(bench: Bench) -> None:
    bench.operator.start()
    cache = a_dataset_cache("town", "datasets/town")
    bench.apply(cache)
    digest = bench.wait_phase("dsc", "town", "Ready")["digest"]
    keys = CacheKeys(bench.namespace, digest)
    first, second = [key for key in objects(bench, keys.prefix) if key != keys.manifest][:2]
    whole = {key: bench.store.get(key, max_bytes=1 << 20) for key in (first, second)}
    bench.kubectl("delete", "dsc", "town", "--timeout=10s")
    bench.store.delete(first)
    bench.store.put(second, bytes(len(whole[second])))  # of the same size: the store's SHA-256 is another
    held = objects(bench, keys.prefix)
    bench.apply(cache)
    pending = bench.wait_phase("dsc", "town", "Pending", "Ready")
    assert (pending["phase"], pending["reason"]) == ("Pending", "ObjectMissing")
    (ready,) = [each for each in pending["conditions"] if each["type"] == "Ready"]
    assert (
        f"{first}: found no object" in ready["message"] and f"remove everything below {keys.prefix}" in ready["message"]
    )
    assert objects(bench, keys.prefix) == held, "nothing is removed"
    bench.operator.kill()  # a new process verifies at once, the same one within a minute
    bench.store.put(first, whole[first])
    bench.operator.start()
    wait_for("the other one to be named", lambda: "(0 missing)" in json.dumps(bench.status("dsc", "town")))
    bench.operator.kill()
    bench.store.put(second, whole[second])
    bench.operator.start()
    assert bench.wait_phase("dsc", "town", "Ready")["digest"] == digest


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
