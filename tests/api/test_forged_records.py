"""Records that somebody with a pod's key has forged: they steer no run and no cache, and the operator names them."""

import json
from typing import Any

from lead_protocol.cache_digest import digest_of
from lead_protocol.manifests import CacheManifest, CollectionEntry, RouteCounts, StoredObject, sha256_hex
from lead_protocol.object_keys import BuildKeys, CacheKeys, ControlKeys, InstanceKeys
from lead_testing.api_bench import Bench
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import wait_for
from lead_testing.statuses import newest_entry

SHA = "5" * 64
HUGE = 10**30


def a_collection(item: StoredObject) -> CollectionEntry:
    return CollectionEntry(object=item, samples=666, buckets=1)


def reason(status: dict[str, Any], kind: str) -> str:
    return next((c["reason"] for c in status.get("conditions", []) if c["type"] == kind), "")


def message(status: dict[str, Any], kind: str) -> str:
    return next((c["message"] for c in status.get("conditions", []) if c["type"] == kind), "")


def forge(bench: Bench, keys: InstanceKeys) -> None:
    """Writes everything below a run's folder that could make the operator act, had it believed it."""
    below = f"runs/{keys.namespace}/{keys.uid}/"
    end = {"phase": "Failed", "reason": "Forged", "message": "forged", "ended_at": "2026-01-01T00:00:00Z"}
    counts = {"program": 0, "infrastructure": 10**17, "voluntary": 0, "instances": []}
    manifest: dict[str, Any] = {
        "run_uid": keys.uid, "stage": keys.stage, "seed": keys.seed, "attempt": 1, "nonce": "f", "step": 15, "epoch": 2,
        "step_in_epoch": 0, "parent_sha256": None, "recipe": "lead", "config_sha256": SHA, "dataset_digests": [],
        "world_size": 1, "torch_version": "2", "parameters_sha256": SHA, "saved_at": "", "final": True, "files": {},
    }  # fmt: skip
    huge = manifest | {"step": 16, "files": {"model.pth": {"key": "k", "size": HUGE, "sha256": SHA}}}
    progress = {"attempt": 1, "seq": HUGE, "phase": "Done", "epoch": 2, "epochs": 2, "step": HUGE, "steps": HUGE}
    for key, document in {
        f"{below}ended.json": end, f"{below}restarts/ended.json": end, f"{below}restarts/restarts-000009.json": counts,
        keys.attempt(10**12): {}, keys.progress(10**12): progress, keys.progress(7): progress,
        keys.manifest(15, 0): manifest, keys.manifest(16, 0): huge, keys.quarantine(3, 0): {},
    }.items():  # fmt: skip
        bench.store.put(key, json.dumps(document).encode())


def test_forged_records_of_a_run_end_nothing_and_are_named(bench: Bench) -> None:
    """Audit: B3. Audit: S14. Audit: minor-integers. Audit: minor-empty-final."""
    bench.driver.script.held.add("train")
    bench.driver.script.held_at = 1
    bench.operator.start()
    one = {"stages": [{"name": "train", "epochs": 2}], "nodes": 1}
    bench.apply(a_dataset_cache("town", "datasets/town"))
    bench.apply(a_training_run("drive", "town", **one), a_training_run("quiet", "town", **one))
    for name in ("drive", "quiet"):
        wait_for(f"{name} to train", lambda name=name: newest_entry(bench.status("trun", name))["checkpoint"])
    keys = InstanceKeys(bench.namespace, bench.get("trun", "drive")["metadata"]["uid"], "train", 0)
    control = ControlKeys(bench.namespace, keys.uid)
    wait_for("the attempt to be recorded", lambda: bench.store.head(control.attempt("train", 0, 1)) is not None)
    quiet = bench.status("trun", "quiet")
    forge(bench, keys)
    wait_for(
        "the forged attempt to be named",
        lambda: reason(bench.status("trun", "drive"), "Progressing") == "UnknownAttempt",
    )
    status = bench.status("trun", "drive")
    assert str(10**12) in message(status, "Progressing")
    assert reason(status, "CheckpointsValid") == "ImplausibleCheckpoint"
    assert "it names no files; it ends no stage" in message(status, "CheckpointsValid")
    assert (status["stages"][0]["attempt"], status["restarts"]["total"]) == (1, 0)
    assert "completionTime" not in status and len(bench.pods()) == 2
    assert bench.status("trun", "quiet")["stages"] == quiet["stages"]
    bench.driver.script.held.clear()
    for name in ("drive", "quiet"):
        done = bench.wait_phase("trun", name, "Succeeded", "Failed")
        assert (done["phase"], done["stages"][0]["attempt"], done["restarts"]["total"]) == ("Succeeded", 1, 0)
    assert bench.operator.page("healthz") == (200, "ok")


def test_a_forged_attempt_number_is_not_believed_after_an_erased_status_either(bench: Bench) -> None:
    """Audit: B3."""
    bench.driver.script.held.add("train")
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"))
    bench.apply(a_training_run("drive", "town", stages=[{"name": "train", "epochs": 2}], nodes=1))
    bench.wait_phase("trun", "drive", "Running", "Starting")
    keys = InstanceKeys(bench.namespace, bench.get("trun", "drive")["metadata"]["uid"], "train", 0)
    control = ControlKeys(bench.namespace, keys.uid)
    wait_for("the attempt to be recorded", lambda: bench.store.head(control.attempt("train", 0, 1)) is not None)
    bench.store.put(keys.attempt(10**12), b"{}")
    bench.kubectl(
        "patch", "trun", "drive", "--subresource=status", "--type=json", "-p", '[{"op":"remove","path":"/status"}]'
    )
    wait_for("the status to be rebuilt", lambda: "stages" in bench.status("trun", "drive"))
    bench.driver.script.held.clear()
    done = bench.wait_phase("trun", "drive", "Succeeded", "Failed")
    assert (done["phase"], done["stages"][0]["attempt"]) == ("Succeeded", 1)


def test_a_forged_cache_is_never_ready_and_the_message_names_both_listings(bench: Bench) -> None:
    """Audit: B3."""
    bench.driver.script.held.add("")
    bench.operator.start()
    bench.store.put("datasets/town/data/r1/a", b"raw")
    bench.apply(a_dataset_cache("town", "datasets/town"))
    bench.wait_phase("dsc", "town", "Building")
    keys = BuildKeys(bench.namespace, bench.get("dsc", "town")["metadata"]["uid"])
    item = StoredObject(key="x", size=5, sha256=sha256_hex(b"false"))
    named = CacheManifest(
        digest=SHA, recipe="lead", builder="forged", config={}, source_sha256=SHA, samples=666, size_bytes=5,
        routes=RouteCounts(total=1, kept=1), routes_object=item, shards=[], metas=[],
        collections={name: a_collection(item) for name in bench.get("dsc", "town")["spec"]["collections"]},
    )  # fmt: skip
    forged = CacheKeys(bench.namespace, digest_of(named))
    rows = {name: a_collection(item.model_copy(update={"key": forged.bucket(name)})) for name in named.collections}
    routes = item.model_copy(update={"key": forged.routes})
    manifest = named.model_copy(update={"digest": forged.digest, "routes_object": routes, "collections": rows})
    for part in manifest.objects:
        bench.store.put(keys.staged(forged.digest).as_staged(part.key), b"false")
    bench.store.put(keys.staged(forged.digest).manifest, manifest.model_dump_json().encode())
    bench.store.put(keys.result(1), json.dumps({"digest": forged.digest}).encode())
    bench.driver.script.held.clear()
    failed = bench.wait_phase("dsc", "town", "Failed", "Ready")
    assert (failed["phase"], failed["reason"]) == ("Failed", "SourceChanged")
    assert f"found listing {SHA} in the manifest, expected " in message(failed, "Ready")
    assert bench.store.head(forged.manifest) is None and "manifestSha256" not in failed


def test_a_published_manifest_that_is_overwritten_is_not_used_any_more(bench: Bench) -> None:
    """Audit: B3."""
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"))
    ready = bench.wait_phase("dsc", "town", "Ready")
    keys = CacheKeys(bench.namespace, ready["digest"])
    sound = bench.store.get(keys.manifest, max_bytes=1 << 20)
    assert ready["manifestSha256"] == sha256_hex(sound)
    forged = sound.replace(b'"samples":40', b'"samples":41')
    bench.store.put(keys.manifest, forged)
    pending = bench.wait_phase("dsc", "town", "Pending")
    assert pending["reason"] == "ManifestReplaced"
    told = message(pending, "Ready")
    assert sha256_hex(forged) in told and sha256_hex(sound) in told
    bench.apply(a_training_run("drive", "town"))
    wait_for("the run to wait", lambda: bench.status("trun", "drive").get("phase") == "Caching")
    assert bench.pods() == []
    bench.store.put(keys.manifest, sound)
    assert bench.wait_phase("trun", "drive", "Succeeded")["datasets"][0]["manifestSha256"] == sha256_hex(sound)
