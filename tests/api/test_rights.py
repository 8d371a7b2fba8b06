"""The operator works with exactly the rights that the chart gives it, and has none on Secrets."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from lead_testing import PROJECT_ROOT
from lead_testing.api_bench import Bench, kubeconfig_of
from lead_testing.local_cluster.binaries import ensure_programs
from lead_testing.local_cluster.errors import CannotRun, StepFailed
from lead_testing.local_cluster.home import Home
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import CONSTANTS, PATIENT, OperatorProcess, wait_for


@pytest.mark.parametrize(
    ("values", "watched"),
    [
        pytest.param((), "", id="listed namespaces"),
        pytest.param(("runs.clusterWide=true", "runs.allowInReleaseNamespace=true"), "*", id="cluster-wide"),
    ],
)
def test_the_charts_roles_are_enough_for_a_whole_run(
    bench: Bench, tmp_path: Path, values: tuple[str, ...], watched: str
) -> None:
    other = f"{bench.namespace}-other"
    # What earlier tests left would be taken up by an operator of the whole cluster.
    bench.plane.kubectl(
        "delete", "trun,dsc", "-A", f"--field-selector=metadata.namespace!={bench.namespace}", "--wait=0"
    )
    bench.plane.kubectl("create", "namespace", other)
    bench.plane.kubectl("apply", "-f", "-", stdin=rendered_roles(bench.namespace, *values))
    kubeconfig = kubeconfig_of(bench, "lead-operator", tmp_path / "kubeconfig")
    cache = {"medium": "PersistentVolume", "sizeLimit": "1Gi"}
    with OperatorProcess(
        kubeconfig, tmp_path / "small", bench.namespace, bench.minio.endpoint, bench.namespace
    ) as small:
        small.start(LEAD_RUN_NAMESPACES=watched or bench.namespace)
        bench.plane.kubectl("-n", other, "apply", "-f", "-", stdin=json.dumps(a_training_run("drive", "town")))
        bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town", sessionCache=cache))
        done = bench.wait_phase("trun", "drive", "Succeeded", "Failed")
        bench.kubectl("patch", "trun", "drive", "--type=merge", "-p", '{"spec":{"ttlSecondsAfterFinished":0}}')
        bench.kubectl("wait", "--for=delete", "trun/drive", "--timeout=30s")
        assert done["phase"] == "Succeeded"
        if watched:
            wait_for("the run of another namespace to be seen", lambda: reason_of(bench, other) == "CacheNotFound")
        assert small.metric("lead_api_calls_total", code="403") == 0
    assert watched or not reason_of(bench, other)
    with pytest.raises(StepFailed, match="forbidden"):
        bench.plane.kubectl("--kubeconfig", str(kubeconfig), "-n", bench.namespace, "get", "secrets")


def test_a_namespace_that_is_lost_stops_no_other_and_is_served_again_when_it_is_back(
    bench: Bench, tmp_path: Path
) -> None:
    lost = f"{bench.namespace}-lost"
    bench.plane.kubectl("create", "namespace", lost)
    roles = rendered_roles(bench.namespace)
    bench.plane.kubectl("apply", "-f", "-", stdin=roles)
    role, binding = (
        json.dumps({**found, "metadata": {"name": "lead-operator", "namespace": lost}})
        for kind in ("Role", "RoleBinding")
        for found in yaml.safe_load_all(roles)
        if found["kind"] == kind and found["metadata"]["name"] == "lead-operator"
    )
    bench.plane.kubectl("apply", "-f", "-", stdin=role)
    bench.plane.kubectl("apply", "-f", "-", stdin=binding)
    kubeconfig = kubeconfig_of(bench, "lead-operator", tmp_path / "kubeconfig")
    constants = {CONSTANTS: json.dumps({**PATIENT, "lead_operator.kube.watchdog.SILENT_S": 10.0})}
    asked = {"LEAD_RUN_NAMESPACES": f"{lost},{bench.namespace}", "LEAD_RESYNC_SECONDS": "4", **constants}
    with OperatorProcess(
        kubeconfig, tmp_path / "two", bench.namespace, bench.minio.endpoint, bench.namespace
    ) as operator:
        operator.start(**asked)
        wait_for("both to be listed", lambda: operator.page("readyz") == (200, "ok"))
        bench.plane.kubectl("-n", lost, "delete", "rolebinding", "lead-operator")
        wait_for("the loss to be told", lambda: f"not served: {lost}: 403" in operator.page("readyz")[1])
        # By then that watch has been silent for longer than one may be.
        wait_for("many tries", lambda: '"failures": 6' in operator.log.read_text())
        assert operator.page("healthz") == (200, "ok")
        assert operator.metric("lead_namespace_served", namespace=lost) == 0
        operator.kill()
        operator.start(**asked)  # a new process gets as far without it
        bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town"))
        assert bench.wait_phase("trun", "drive", "Succeeded", "Failed")["phase"] == "Succeeded"
        bench.plane.kubectl("-n", lost, "apply", "-f", "-", stdin=json.dumps(a_dataset_cache("town", "datasets/town")))
        bench.plane.kubectl("apply", "-f", "-", stdin=binding)
        wait_for("it to be served again", lambda: operator.metric("lead_namespace_served", namespace=lost) == 1)
        bench.plane.kubectl("-n", lost, "wait", "dsc/town", "--for=jsonpath={.status.phase}=Building", "--timeout=60s")


def reason_of(bench: Bench, namespace: str) -> str:
    """Returns the reason in the status of the run `drive` of a namespace; empty where nobody wrote one."""
    return bench.plane.kubectl("-n", namespace, "get", "trun", "drive", "-o", "jsonpath={.status.reason}")


def rendered_roles(namespace: str, *values: str) -> str:
    """Renders the chart's operator rights for a release `lead` in one namespace, with such `--set` values."""
    try:
        helm = shutil.which("helm") or str(ensure_programs(Home.from_environment(), ["helm"])["helm"])
    except CannotRun as reason:
        pytest.skip(f"helm is neither on PATH nor can it be built: {reason}")
    shown = [word for part in ("rbac", "serviceaccount") for word in ("-s", f"templates/operator/{part}.yaml")]
    argv = [helm, "template", "lead", str(PROJECT_ROOT / "charts/lead"), "-n", namespace, "--kube-version", "1.34.4"]
    chosen = [word for value in values for word in ("--set", value)]
    done = subprocess.run([*argv, *shown, *chosen], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
