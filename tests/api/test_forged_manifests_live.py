"""Manifests of 16 MiB that pods of one namespace have forged leave the operator small, and others are served."""

import json
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from lead_protocol.manifests import MAX_CHECKPOINT_MANIFEST_BYTES, MAX_MANIFEST_BYTES
from lead_protocol.object_keys import BuildKeys, InstanceKeys
from lead_testing.api_bench import Bench
from lead_testing.figures import record
from lead_testing.forgeries import (
    SHA,
    STRUCTURES,
    a_cache_manifest,
    a_checkpoint,
    most_files,
    most_metas,
    most_shards,
    padded,
)
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import wait_for
from lead_testing.pod_driver import PodDriver
from lead_testing.statuses import newest_entry

MAX_RSS_MIB = 320  # five eighths of the limit that the chart sets
RUNS = 30
MANY = 2_000  # manifests of one run
WRITERS = 4
FIRST = 100  # step of them
MAX_RECORD_BYTES = 64 * 1024
UNPARSED = {"z": 1}


@pytest.fixture
def alice(bench: Bench) -> Iterator[Bench]:
    """A namespace of another user than the bench's, with moving pods, in the same bucket and on the same operator."""
    name = f"alice-{secrets.token_hex(3)}"
    bench.plane.kubectl("create", "namespace", name)
    with PodDriver(bench.plane.kubeconfig, name, bench.store, bench.namespace) as driver:
        yield replace(bench, namespace=name, driver=driver)


def most_mib(pid: int) -> float:
    """Returns the most memory that a process ever had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def start(bench: Bench, alice: Bench) -> None:
    bench.operator.start(LEAD_RUN_NAMESPACES=f"{alice.namespace},{bench.namespace}")


def forge_run(alice: Bench, number: int, keys: InstanceKeys) -> None:
    """Writes what a pod's key may write below its run: one structure as large as a LIST shows, one as may be read."""
    structure = list(STRUCTURES)[number % len(STRUCTURES)]
    size = MAX_CHECKPOINT_MANIFEST_BYTES
    for key, data in {
        keys.manifest(10**9, 0): padded(a_checkpoint(keys, 10**9), structure, MAX_MANIFEST_BYTES),
        keys.manifest(10**8, 0): padded(UNPARSED, structure, size),
        keys.manifest(10**7, 0): padded(a_checkpoint(keys, 10), structure, size),  # of another step than its name's
        keys.manifest(10**6, 0): padded(a_checkpoint(keys, 10**6), structure, size),  # it is the newest
        keys.manifest(10**5, 0): most_files(keys, 10**5),
        keys.progress(2): padded(UNPARSED, structure, size),
        keys.quarantine(5, 0): padded(UNPARSED, structure, size),
        keys.attempt(2): padded(UNPARSED, structure, size),
    }.items():
        alice.store.put(key, data)


def forge_many(alice: Bench, keys: InstanceKeys) -> None:
    """Writes many valid manifests of one run, each with the most files: together they are too large to be kept."""
    told = most_files(keys, FIRST)

    def put(step: int) -> None:
        changed = told.replace(b'"step": %d,' % FIRST, b'"step": %d,' % step)
        alice.store.put(keys.manifest(step, 0), changed)

    with ThreadPoolExecutor(WRITERS) as writers:
        list(writers.map(put, range(FIRST, FIRST + MANY)))


def forge_caches(alice: Bench) -> list[str]:
    """Writes what a build pod's key may write, of each structure, and lets the builds end; returns the resources."""
    document = json.loads(a_cache_manifest())
    staged = {
        "shards": most_shards(), "metas": most_metas(), "bytes": padded(document, "one string", MAX_MANIFEST_BYTES),
        "lists": padded(document, "empty lists", MAX_MANIFEST_BYTES),
        "none": padded({}, "long keys", MAX_MANIFEST_BYTES),
    }  # fmt: skip
    alice.driver.script.held.add("")
    alice.apply(*(a_dataset_cache(name, "datasets/town") for name in staged))
    for name, data in staged.items():
        alice.wait_phase("dsc", name, "Building")
        keys = BuildKeys(alice.namespace, alice.get("dsc", name)["metadata"]["uid"])
        alice.store.put(keys.staged(SHA).manifest, data)
        alice.store.put(keys.progress(2, 0), padded(UNPARSED, "numbers", MAX_MANIFEST_BYTES))
        alice.store.put(keys.result(1), padded({"digest": SHA}, "small strings", MAX_RECORD_BYTES))
    alice.driver.script.held.discard("")
    return list(staged)


def is_named(alice: Bench, name: str) -> bool:
    """Tells whether the newest manifest that is one was read and found to name what is not there."""
    told = alice.status("trun", name).get("conditions", [])
    return any(condition["reason"] == "ImplausibleCheckpoint" for condition in told)


def test_forged_manifests_leave_the_operator_small_and_the_other_user_served(bench: Bench, alice: Bench) -> None:
    """Met while it runs and by one that starts: little is kept of them, and no large one is parsed beside another.

    Audit: S-2
    """
    alice.driver.script.held.add("train")
    alice.driver.script.held_at = 1
    start(bench, alice)
    for user in (alice, bench):
        user.apply(a_dataset_cache("town", "datasets/town"))
    names = [f"forged-{number}" for number in range(RUNS)]
    one = {"stages": [{"name": "train", "epochs": 2}], "nodes": 1}
    alice.apply(*(a_training_run(name, "town", **one) for name in names))
    for name in names:
        wait_for(f"{name} to train", lambda name=name: newest_entry(alice.status("trun", name))["checkpoint"])
    uids = {item["metadata"]["name"]: item["metadata"]["uid"] for item in alice.items("trun")}
    runs = [InstanceKeys(alice.namespace, uids[name], "train", 0) for name in names]
    with ThreadPoolExecutor(WRITERS) as writers:
        list(writers.map(lambda number: forge_run(alice, number, runs[number]), range(RUNS)))
    forge_many(alice, runs[0])
    caches = forge_caches(alice)
    bench.apply(a_training_run("drive", "town"))
    bench.wait_phase("trun", "drive", "Succeeded")
    for name in caches:
        alice.wait_phase("dsc", name, "Failed")
    for name in names:
        wait_for(f"the forgery of {name} to be named", lambda name=name: is_named(alice, name))
    first = most_mib(bench.operator.pid)
    assert bench.operator.exit_status() is None
    bench.operator.kill()
    start(bench, alice)  # all of it is met at once
    bench.apply(a_training_run("after", "town"))
    bench.wait_phase("trun", "after", "Succeeded")
    wait_for("all runs to be looked at", lambda: bench.operator.looks() > 2 * RUNS)
    second = most_mib(bench.operator.pid)
    assert bench.operator.exit_status() is None
    record("rss_mib_most_forged", first, second)
    assert max(first, second) < MAX_RSS_MIB, (first, second)
    for name in names:
        assert alice.status("trun", name)["restarts"]["total"] == 0, name
