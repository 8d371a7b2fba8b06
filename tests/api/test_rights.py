"""The operator works with exactly the rights that the chart gives it, and has none on Secrets."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from lead_testing import PROJECT_ROOT
from lead_testing.api_bench import Bench
from lead_testing.local_cluster.binaries import ensure_programs
from lead_testing.local_cluster.errors import CannotRun, StepFailed
from lead_testing.local_cluster.home import Home
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.operator_process import OperatorProcess


def test_the_charts_roles_are_enough_for_a_whole_run(bench: Bench, tmp_path: Path) -> None:
    bench.plane.kubectl("apply", "-f", "-", stdin=rendered_roles(bench.namespace))
    kubeconfig = kubeconfig_of(bench, "lead-operator", tmp_path / "kubeconfig")
    cache = {"medium": "PersistentVolume", "sizeLimit": "1Gi"}
    with OperatorProcess(
        kubeconfig, tmp_path / "small", bench.namespace, bench.minio.endpoint, bench.namespace
    ) as small:
        small.start()
        bench.apply(a_dataset_cache("town", "datasets/town"), a_training_run("drive", "town", sessionCache=cache))
        done = bench.wait_phase("tr", "drive", "Succeeded", "Failed")
        bench.kubectl("patch", "tr", "drive", "--type=merge", "-p", '{"spec":{"ttlSecondsAfterFinished":0}}')
        bench.kubectl("wait", "--for=delete", "tr/drive", "--timeout=30s")
        assert done["phase"] == "Succeeded"
        assert small.metric("lead_api_calls_total", code="403") == 0
    with pytest.raises(StepFailed, match="forbidden"):
        bench.plane.kubectl("--kubeconfig", str(kubeconfig), "-n", bench.namespace, "get", "secrets")


def rendered_roles(namespace: str) -> str:
    """Renders the chart's operator rights for a release `lead` in one namespace."""
    try:
        helm = shutil.which("helm") or str(ensure_programs(Home.from_environment(), ["helm"])["helm"])
    except CannotRun as reason:
        pytest.skip(f"helm is neither on PATH nor can it be built: {reason}")
    shown = [word for part in ("rbac", "serviceaccount") for word in ("-s", f"templates/operator/{part}.yaml")]
    argv = [helm, "template", "lead", str(PROJECT_ROOT / "charts/lead"), "-n", namespace, "--kube-version", "1.34.4"]
    done = subprocess.run([*argv, *shown], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def kubeconfig_of(bench: Bench, account: str, path: Path) -> Path:
    """Writes a kubeconfig of a service account, as a pod would have it."""
    document = yaml.safe_load(bench.plane.kubeconfig.read_text())
    token = bench.kubectl("create", "token", account).strip()
    document["users"][0]["user"] = {"token": token}
    path.write_text(json.dumps(document))
    return path
