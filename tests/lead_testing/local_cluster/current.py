"""The cluster that the user's kube context points at: nothing is started and nothing is stopped there."""

import os
import shutil
from pathlib import Path

from lead_testing.local_cluster.binaries import ensure_programs
from lead_testing.local_cluster.commands import read_output
from lead_testing.local_cluster.errors import CannotRun, StepFailed
from lead_testing.local_cluster.home import Home


def find_kubeconfig(home: Home) -> Path:
    """Writes the current context, alone, into a file and returns it, once its API server has answered."""
    lacking = [name for name in ("kubectl", "helm") if not shutil.which(name)]
    ensure_programs(home, lacking)
    kubectl = shutil.which("kubectl") or home.bin / "kubectl"
    text = read_output([kubectl, "config", "view", "--raw", "--minify", "--flatten"])
    path = home.root / "current" / "kubeconfig"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(text)
    try:
        read_output([kubectl, f"--kubeconfig={path}", "get", "--raw", "/readyz"], timeout_s=30)
    except StepFailed as error:
        where = os.environ.get("KUBECONFIG", "~/.kube/config")
        raise CannotRun(
            f"LEAD_CLUSTER=current, but the cluster of the current context in {where} does not answer: {error}"
        ) from error
    return path
