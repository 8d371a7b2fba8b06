"""What a repository applies stays as it was written: no drift, whoever applies it; nothing works for what is pruned."""

import json
import shutil
from pathlib import Path

import pytest

from lead_testing import PROJECT_ROOT
from lead_testing.api_bench import Bench
from lead_testing.local_cluster.errors import StepFailed
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import wait_for

EXAMPLES = sorted((PROJECT_ROOT / "crds/examples").glob("*.yaml"))
AS_FLUX = ("--server-side", "--field-manager=kustomize-controller", "--force-conflicts")
STAGES_OF_DEFAULTS = [{"name": "short"}, {"name": "long", "initFrom": {"stage": "short"}}]
WAYS = {"Flux": AS_FLUX, "kubectl": (), "Argo CD": ("--server-side", "--field-manager=argocd-controller")}


@pytest.fixture(autouse=True)
def diff_program() -> None:
    if not shutil.which("diff"):
        pytest.skip("kubectl diff needs the program diff: apt-get install diffutils")


@pytest.mark.parametrize("way", WAYS)
def test_no_drift_before_during_and_after_a_run(bench: Bench, way: str) -> None:
    bench.operator.start()
    for example in EXAMPLES:
        bench.kubectl("apply", *WAYS[way], "-f", str(example))
    names = bench.kubectl("get", "trun,dsc", "-o", "name").split()
    for name in names:
        wait_for(f"a status of {name}", lambda n=name: bench.kubectl("get", n, "-o", "jsonpath={.status.phase}"))
    generations = versions(bench, names)
    for example in EXAMPLES:
        assert drift(bench, example, WAYS[way]) == ""
        bench.kubectl("apply", *WAYS[way], "-f", str(example))
    bench.wait_phase("trun", "lead-demo", "Succeeded")
    for example in EXAMPLES:
        assert drift(bench, example, WAYS[way]) == ""
        bench.kubectl("apply", *WAYS[way], "-f", str(example))
    assert versions(bench, names) == generations, "applying the same again must not make a new generation"
    assert bench.status("trun", "lead-demo")["phase"] == "Succeeded", "applying again must not touch the status"


def test_the_operator_owns_the_status_and_nothing_else(bench: Bench) -> None:
    bench.operator.start()
    demo = PROJECT_ROOT / "crds/examples/lead-demo.yaml"
    bench.kubectl("apply", *AS_FLUX, "-f", str(demo))
    bench.wait_phase("trun", "lead-demo", "Succeeded")
    for kind, name in (("trun", "lead-demo"), ("dsc", "carla-demo")):
        fields = bench.get(kind, name)["metadata"]["managedFields"]
        ours = [entry["fieldsV1"] for entry in fields if entry["manager"] == "lead-operator"]
        assert [list(entry) for entry in ours] == [["f:status"]]


def test_pruning_a_run_that_trains_leaves_nothing_that_works_for_it(bench: Bench, tmp_path: Path) -> None:
    bench.driver.script.held.add("pretrain")
    bench.operator.start()
    demo = PROJECT_ROOT / "crds/examples/lead-demo.yaml"
    bench.kubectl("apply", *AS_FLUX, "-f", str(demo))
    bench.wait_phase("trun", "lead-demo", "Running")
    uid = bench.get("trun", "lead-demo")["metadata"]["uid"]
    bench.kubectl("delete", "trun", "lead-demo", "--cascade=background", "--timeout=10s")
    children = [p for p in bench.driver.seen.values() if "lead-demo" in p["metadata"]["name"]]
    assert all(
        owner["uid"] == uid and owner["controller"] for p in children for owner in p["metadata"]["ownerReferences"]
    )
    wait_for("the cache to be free", lambda: not bench.status("dsc", "carla-demo").get("usedBy"))
    assert not [p for p in bench.driver.seen.values() if "-a2-" in p["metadata"]["name"]]


def test_applying_an_unchanged_file_again_changes_nothing_and_conflicts_with_nobody(
    bench: Bench, tmp_path: Path
) -> None:
    """Entries of lists leave out what has a default: the stored list stays the applied one."""
    file = tmp_path / "apply.json"
    tolerated = [{"key": "nvidia.com/gpu"}]
    cache = a_dataset_cache("towns", "datasets/towns", build={"tolerations": tolerated})
    run = a_training_run("drive", "towns", stages=STAGES_OF_DEFAULTS, podOverrides={"tolerations": tolerated})
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [cache, run]}))
    bench.kubectl("apply", "-f", str(file))
    again = [bench.kubectl("apply", "-f", str(file)).splitlines() for _ in range(2)]
    assert all(line.endswith(" unchanged") for lines in again for line in lines), again
    bench.kubectl("delete", "-f", str(file))
    for manager in ("first", "second", "first"):
        bench.kubectl("apply", "--server-side", f"--field-manager={manager}", "-f", str(file))
    stored = bench.get("trun", "drive")["spec"]
    assert (stored["stages"], stored["podOverrides"]["tolerations"]) == (STAGES_OF_DEFAULTS, tolerated)
    assert bench.get("dsc", "towns")["spec"]["build"]["tolerations"] == tolerated


def test_defaults_inside_lists_are_in_force(bench: Bench) -> None:
    bench.driver.script.held.add("short")
    bench.operator.start()
    tolerated = [{"key": "nvidia.com/gpu"}]
    bench.apply(a_dataset_cache("towns", "datasets/towns"))
    bench.apply(a_training_run("drive", "towns", stages=STAGES_OF_DEFAULTS, podOverrides={"tolerations": tolerated}))
    bench.wait_phase("trun", "drive", "Running")
    shown = [(s["name"], s["seed"], s["progress"]["epochs"]) for s in bench.status("trun", "drive")["stages"]]
    assert shown == [("short", 0, 31), ("long", 0, 31)]
    taints = [t for p in bench.pods() for t in p["spec"]["tolerations"] if t.get("key") == "nvidia.com/gpu"]
    assert taints == [{"key": "nvidia.com/gpu", "operator": "Equal"}] * 2


def drift(bench: Bench, example: Path, way: tuple[str, ...]) -> str:
    """Returns what `kubectl diff` prints, empty where the cluster is as the file says.

    It reads the object twice; only what it prints three times in a row is no status that was written in between.
    """
    said = ""
    for _ in range(3):
        try:
            return bench.kubectl("diff", *way, "-f", str(example))
        except StepFailed as error:
            said = str(error)
    return said


def versions(bench: Bench, names: list[str]) -> dict[str, str]:
    return {name: bench.kubectl("get", name, "-o", "jsonpath={.metadata.generation}") for name in names}
