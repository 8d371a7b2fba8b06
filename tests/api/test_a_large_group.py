"""Very many pods of one run at once: all fail in one moment, and there is one restart."""

import os

import pytest

from lead_testing.api_bench import Bench
from lead_testing.kube_faults.truth import Truth
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.pod_driver import Exit

NODES = int(os.environ.get("LEAD_TEST_NODES", "40"))  # a run has at most 256


@pytest.mark.timeout(3600)
def test_a_group_whose_pods_all_fail_in_one_moment_is_replaced_once(bench: Bench) -> None:
    bench.driver.script.exits.update({("pretrain", 1, rank): Exit(1, "a storm") for rank in range(NODES)})
    with Truth(bench.plane.kubeconfig, bench.namespace) as truth:
        bench.operator.start()
        bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town", nodes=NODES))
        done = bench.wait_phase("trun", "drive", "Succeeded", "Failed", within_s=300 + 5 * NODES)
    restarts = done["restarts"]
    assert (done["phase"], restarts["program"], restarts["total"]) == ("Succeeded", 1, 1)
    assert done["lastFailure"]["message"].count("a storm") == 1
    names = [pod["metadata"]["name"] for pod in bench.driver.seen.values() if "drive" in pod["metadata"]["name"]]
    assert len(names) == len(set(names)) == 2 * NODES
    assert truth.violations == []
