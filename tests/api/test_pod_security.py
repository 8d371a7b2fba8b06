"""Pod Security admission as a real API server does it: our pods pass `restricted`, and what it refuses is told."""

import json

import pytest

from lead_testing.api_bench import Bench
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import CONSTANTS, PATIENT, wait_for


def enforce(bench: Bench, level: str) -> None:
    """Lets the namespace take pods of this level only."""
    label = f"pod-security.kubernetes.io/enforce={level}"
    bench.plane.kubectl("label", "--overwrite", "namespace", bench.namespace, label)


@pytest.mark.parametrize(
    "spec",
    [
        {"sessionCache": {"medium": "EmptyDir", "sizeLimit": "1Gi"}},
        {
            "sessionCache": {"medium": "PersistentVolume", "sizeLimit": "1Gi"},
            "logging": {"wandb": {"project": "p", "mode": "Offline", "secretName": "lead-wandb-key"}},
            "podOverrides": {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
        },
    ],
    ids=["plain", "with everything that a pod may mount"],
)
def test_pods_of_builds_and_of_runs_pass_the_restricted_standard(bench: Bench, spec: dict[str, object]) -> None:
    enforce(bench, "restricted")
    bench.operator.start()
    bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town", **spec))
    assert bench.wait_phase("trun", "drive", "Succeeded", "Failed")["phase"] == "Succeeded"
    assert "FailedCreate" not in bench.kubectl("get", "events")


def test_pods_that_a_namespace_does_not_admit_name_the_label_and_come_later(
    bench: Bench,
) -> None:
    enforce(bench, "restricted")
    as_root = json.dumps({"runAsUser": 0, "runAsGroup": 0, "fsGroup": 0})
    bench.operator.start(**{CONSTANTS: json.dumps(PATIENT), "LEAD_POD_SECURITY": as_root})
    bench.apply(a_dataset_cache("town", "datasets/town"))
    wait_for("the refusal", lambda: bench.status("dsc", "town").get("reason") == "ObjectsRefused")
    told = json.dumps(bench.status("dsc", "town")["conditions"])
    assert "violates PodSecurity" in told and "runAsUser=0" in told
    assert "let the namespace admit these pods (label pod-security.kubernetes.io/enforce)" in told
    wait_for("the pause between tries to grow", lambda: len(set(bench.operator.pauses())) >= 3)
    assert bench.operator.pauses() == sorted(bench.operator.pauses())
    enforce(bench, "baseline")
    bench.wait_phase("dsc", "town", "Ready")
