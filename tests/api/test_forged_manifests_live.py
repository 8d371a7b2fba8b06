"""Manifests and records of 16 MiB that pods of one namespace have forged leave the operator small, and others served."""

import json
import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from lead_protocol.manifests import MAX_CHECKPOINT_MANIFEST_BYTES, MAX_MANIFEST_BYTES
from lead_protocol.object_keys import BuildKeys, InstanceKeys
from lead_testing.api_bench import Bench
from lead_testing.figures import record
from lead_testing.forgeries import STRUCTURES, a_checkpoint, most_files, padded
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import wait_for
from lead_testing.pod_driver import PodDriver

MAX_RSS_MIB = 256  # half of the chart's limit
RUNS = 30
MANY = 2_000  # manifests of one run
WRITERS = 4
UNPARSED = {"x": 1}


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
    """Writes the most manifests: valid ones, each with the most files, and long keys; none of them is removed."""
    def put(step: int) -> None:
        alice.store.put(keys.manifest(step, 0), most_files(keys, step))

    with ThreadPoolExecutor(WRITERS) as writers:
        list(writers.map(put, range(100, 100 + MANY)))


def test_forged_manifests_leave_the_operator_small_and_the_other_user_served(bench: Bench, alice: Bench) -> None:
    """Met while it runs and by one that starts: nothing is kept that is large, and it parses one at a time.

    Audit: S-2
    """
    alice.driver.script.held.add("train")
    alice.driver.script.held_at = 1
    start(bench, alice)
    alice.apply(a_dataset_cache("town", "datasets/town"))
    bench.apply(a_dataset_cache("town", "datasets/town"))
    names = [f"forged-{number}" for number in range(RUNS)]
    one = {"stages": [{"name": "train", "epochs": 2}], "nodes": 1}
    alice.apply(*(a_training_run(name, "town", **one) for name in names))
    for name in names:
        wait_for(f"{name} to train", lambda name=name: "checkpoint" in alice.status("trun", name))
    uids = {item["metadata"]["name"]: item["metadata"]["uid"] for item in alice.items("trun")}
    runs = [InstanceKeys(alice.namespace, uids[name], "train", 0) for name in names]
    import time; t0=time.time(); print("up", t0)
    honest = most_mib(bench.operator.pid)
    with ThreadPoolExecutor(WRITERS) as writers:
        list(writers.map(lambda number: forge_run(alice, number, runs[number]), range(RUNS)))
    print("forged", time.time()-t0, most_mib(bench.operator.pid))
    forge_many(alice, runs[0])
    print("many", time.time()-t0, most_mib(bench.operator.pid))
    bench.apply(a_training_run("drive", "town"))
    bench.wait_phase("trun", "drive", "Succeeded")
    first = most_mib(bench.operator.pid)
    print(honest, first, time.time()-t0)
