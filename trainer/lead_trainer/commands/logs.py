"""`lead logs`: what the pods of a run log, by kubectl, with the user's credentials and context."""

import subprocess

from lead_trainer.programs import program

RUN_LABEL = "lead.dev/run"  # of a run's pods; a test holds it together with the operator's
_MOST_PODS = 1000


def show_logs(run: str, namespace: str, *, follow: bool) -> int:
    """Prints the logs of a run's pods, each line with its pod; returns kubectl's exit code."""
    kubectl = program("kubectl", "lead logs asks the cluster by it; install it")
    chosen = ["--selector", f"{RUN_LABEL}={run}", "--prefix", "--tail=-1", f"--max-log-requests={_MOST_PODS}"]
    where = ["--namespace", namespace] if namespace else []
    return subprocess.run([kubectl, "logs", *chosen, *where, *(["--follow"] if follow else [])]).returncode
