"""A DatasetCache whose build has stages, by the real operator: order, status of each, and whatever interrupts it."""

from collections import Counter
from itertools import cycle
from typing import Any

from lead_protocol.object_keys import BuildKeys
from lead_testing.api_bench import Bench
from lead_testing.manifests import a_dataset_cache
from lead_testing.operator_process import DIE_AFTER_WRITE, KILLED, wait_for
from lead_testing.pod_driver import Exit

GPU = "nvidia.com/gpu"
STAGES = [
    {"name": "extract", "workers": 2},
    {"name": "labels", "workers": 2, "resources": {"limits": {GPU: 1}}},
    {"name": "history", "after": ["extract", "labels"]},
]
WORKERS = {"extract": 2, "labels": 2, "history": 1, "merge": 1}


def a_staged_cache() -> dict[str, Any]:
    return a_dataset_cache("clips", "datasets/clips", build={"parallelism": 1, "stages": STAGES})


def phases(bench: Bench) -> dict[str, str]:
    return {each["name"]: each["phase"] for each in bench.status("dsc", "clips").get("stages", [])}


def pods_made(bench: Bench) -> Counter[str]:
    return Counter(pod["metadata"]["labels"]["lead.dev/stage"] for pod in bench.driver.seen.values())


def at_work(bench: Bench) -> str:
    return str(bench.status("dsc", "clips").get("display", {}).get("stage", ""))


def test_stages_run_in_their_order_and_only_one_of_them_has_a_gpu(bench: Bench) -> None:
    script = bench.driver.script
    script.held |= {"extract", "labels", ""}
    bench.operator.start()
    bench.apply(a_staged_cache())
    wait_for("two stages at once", lambda: at_work(bench) == "extract,labels")
    wait_for(
        "records of their pods", lambda: all("samples" in each for each in bench.status("dsc", "clips")["stages"][:2])
    )
    assert phases(bench) == {"extract": "Running", "labels": "Running", "history": "Pending", "merge": "Pending"}
    (labels,) = [each for each in bench.status("dsc", "clips")["stages"] if each["name"] == "labels"]
    assert (labels["pods"], labels["samples"]) == ({"done": 0, "total": 2}, {"done": 6, "total": 40})
    script.held.discard("extract")
    wait_for("the end of one", lambda: phases(bench)["extract"] == "Succeeded")
    assert phases(bench)["history"] == "Pending" and pods_made(bench)["history"] == 0
    wide = bench.kubectl("get", "dsc", "clips", "-o", "wide").splitlines()
    assert wide[1].split()[wide[0].split().index("STAGE") - len(wide[0].split())] == "labels"
    described = bench.kubectl("describe", "dsc", "clips")
    assert "waits for labels" in described
    script.held.discard("labels")
    wait_for("the last stage", lambda: at_work(bench) == "merge")
    script.held.discard("")
    ready = bench.wait_phase("dsc", "clips", "Ready")
    assert {each["name"]: each["phase"] for each in ready["stages"]} == dict.fromkeys(WORKERS, "Succeeded")
    assert pods_made(bench) == WORKERS
    on_gpu = {
        pod["metadata"]["labels"]["lead.dev/stage"]
        for pod in bench.driver.seen.values()
        if GPU in pod["spec"]["containers"][0]["resources"]["limits"]
    }
    assert on_gpu == {"labels"}


def test_deaths_of_operator_and_pods_and_an_erased_status_bring_it_to_the_same_end(bench: Bench) -> None:
    """Only what was lost is made again: one pod of the stage that failed."""
    bench.driver.script.exits[("labels", 1, 1)] = Exit(1, "CUDA error")
    bench.driver.script.held.add("history")
    bench.apply(a_staged_cache())
    deaths = 0
    for writes in cycle((3, 5, 4)):  # a life ends right after so many writes
        bench.operator.start(**{DIE_AFTER_WRITE: str(writes)})
        wait_for(
            "a death or the third stage",
            lambda: bench.operator.exit_status() == KILLED or phases(bench).get("history") == "Running",
        )
        deaths += bench.operator.exit_status() == KILLED
        bench.operator.kill()
        if phases(bench).get("history") == "Running":
            break
    assert deaths >= 2
    before = bench.status("dsc", "clips")
    for pod in bench.pods("build"):  # those of the stage with the GPU are gone, and with them what they ended with
        if pod["metadata"]["labels"]["lead.dev/stage"] == "labels":
            bench.kubectl("delete", "pod", pod["metadata"]["name"], "--force", "--grace-period=0")
    bench.kubectl("patch", "dsc", "clips", "--subresource=status", "--type=merge", "-p", '{"status":null}')
    bench.operator.start()
    wait_for("the status", lambda: phases(bench) == {each["name"]: each["phase"] for each in before["stages"]})
    bench.driver.script.held.discard("history")
    bench.wait_phase("dsc", "clips", "Ready")
    assert pods_made(bench) == {**WORKERS, "labels": 3}


def test_what_stages_made_is_removed_when_the_cache_is_published(bench: Bench) -> None:
    bench.operator.start()
    bench.apply(a_staged_cache())
    bench.wait_phase("dsc", "clips", "Ready")
    keys = BuildKeys(bench.namespace, bench.get("dsc", "clips")["metadata"]["uid"])
    assert not list(bench.store.list(keys.staged_prefix))
