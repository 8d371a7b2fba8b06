"""The operator holds what no admission policy refused: a claim of the store, a spec beyond the lists."""

import json
from typing import Any

from lead_testing.api_bench import Bench
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import wait_for

STORES = {
    "app.kubernetes.io/name": "lead",
    "app.kubernetes.io/instance": "lead",
    "app.kubernetes.io/component": "minio",
}


def a_claim(name: str, labels: dict[str, str]) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def accepted(bench: Bench, kind: str, name: str) -> dict[str, Any]:
    conditions = bench.status(kind, name).get("conditions", [])
    return next((each for each in conditions if each["type"] == "Accepted"), {})


def test_a_claim_of_the_store_is_not_mounted_and_one_of_raw_data_is(bench: Bench) -> None:
    """A DatasetCache cannot read the embedded store's volume, whatever it and the claim are called.

    Audit: S-1
    """
    bench.operator.start()
    bench.apply(a_claim("lead-source-trick", STORES), a_claim("lead-source-town", {}))
    for name in ("trick", "town"):
        bench.apply(a_dataset_cache(name, "", source={"claimName": f"lead-source-{name}"}))
    wait_for(
        "the build on raw data", lambda: bench.pods("build") or bench.status("dsc", "town").get("phase") == "Ready"
    )
    wait_for("the refusal", lambda: accepted(bench, "dsc", "trick").get("reason") == "NotAllowed")
    assert "allowed is no claim of a release of this chart" in accepted(bench, "dsc", "trick")["message"]
    mounted = json.dumps([pod["spec"]["volumes"] for pod in bench.pods("build")])
    assert "lead-source-trick" not in mounted


def test_a_run_beyond_the_lists_waits_until_the_administrator_allows_it(bench: Bench) -> None:
    """And a list that is tightened while it trains ends nothing.

    Audit: S-4
    """
    bench.driver.script.held.add("pretrain")
    bench.operator.start(LEAD_POLICY="{}")
    asked = a_training_run("drive", "town", podOverrides={"labels": {"team": "blue"}})
    bench.apply(a_dataset_cache("town", "datasets/town"), asked)
    bench.wait_phase("dsc", "town", "Ready")
    wait_for("the refusal", lambda: accepted(bench, "trun", "drive").get("reason") == "NotAllowed")
    assert (
        "an administrator sets policy.allowedLabels in the chart's values"
        in accepted(bench, "trun", "drive")["message"]
    )
    assert not bench.pods()
    bench.operator.kill()
    bench.operator.start(LEAD_POLICY='{"allowedLabels": ["team"]}')
    bench.wait_phase("trun", "drive", "Running")
    before = {pod["metadata"]["uid"] for pod in bench.pods()}
    bench.operator.kill()
    bench.operator.start(LEAD_POLICY="{}")
    wait_for(
        "it to be said", lambda: "would be refused as a new run" in accepted(bench, "trun", "drive").get("message", "")
    )
    assert {pod["metadata"]["uid"] for pod in bench.pods()} == before
    bench.driver.script.held.clear()
    assert bench.wait_phase("trun", "drive", "Succeeded", "Failed")["phase"] == "Succeeded"
