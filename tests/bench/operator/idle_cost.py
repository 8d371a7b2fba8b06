"""What live runs cost our operator while nothing happens: `python -m bench.operator.idle_cost --runs 1000`.

On a real API server and a real MinIO: runs are created and train, their trainers fall silent, and operators take them
over one after another, with the settings that the chart ships. Of each the share of one core is printed for every
minute; CPU seconds of a process hardly depend on what else the machine does. `--code FOLDER`, the `operator` folder of
another commit with the same CRDs, is measured before this checkout and on the same runs.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lead_testing import PROJECT_ROOT
from lead_testing.api_bench import Bench, open_bench
from lead_testing.local_cluster.control_plane import ControlPlane
from lead_testing.manifests import a_dataset_cache, a_training_run
from lead_testing.minio_server import MinioServer, minio_program
from lead_testing.operator_process import CONSTANTS, wait_for

SHIPPED = {"LEAD_PROGRESS_SECONDS": "10", "LEAD_RESYNC_SECONDS": "60", "LEAD_RELIST_SECONDS": "600", CONSTANTS: "{}"}
HOPELESS_S = 1800.0
AT_ONCE = 100  # manifests in one call of kubectl
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
STAGE = "pretrain"


def main() -> None:
    """Reads the arguments and prints a line a minute."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--code", type=Path, help="the operator folder of another commit")
    parser.add_argument("--code-minutes", type=int, default=3)
    parser.add_argument("--minutes", type=int, default=11)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lead-bench-idle-") as name:
        folder = Path(name)
        with ControlPlane(folder / "plane") as plane, MinioServer(minio_program(), folder / "minio") as minio:
            crds = [str(PROJECT_ROOT / "crds" / f"{kind}.yaml") for kind in ("trainingrun", "datasetcache")]
            plane.kubectl("apply", "--server-side", "-f", crds[0], "-f", crds[1])
            plane.kubectl(
                "wait", "--for=condition=Established", "crd/trainingruns.lead.dev", "crd/datasetcaches.lead.dev"
            )
            with open_bench(plane, minio, folder) as bench:
                train(bench, options.runs)
                if options.code:
                    measure(bench, "other code", options.code_minutes, options.code)
                measure(bench, "this checkout", options.minutes, PROJECT_ROOT / "operator")


def train(bench: Bench, runs: int) -> None:
    """Lets so many runs of one pod train, and then everybody but the API server fall silent."""
    bench.driver.script.held.add(STAGE)
    bench.operator.start(**SHIPPED)
    bench.apply(a_dataset_cache("town", "datasets/town"))
    for first in range(0, runs, AT_ONCE):
        last = min(runs, first + AT_ONCE)
        bench.apply(*(a_training_run(f"run-{number:04d}", "town", nodes=1) for number in range(first, last)))

    def all_train() -> bool:
        bench.driver.refuse_to_be_dead()
        # The API server would take seconds for a list of them all.
        trained = bench.operator.metric("lead_resources", kind="TrainingRun", phase="Running")
        print(f"{trained:.0f} of {runs} train, load {os.getloadavg()[0]:.1f}", flush=True)
        return trained == runs

    wait_for("all to train", all_train, within_s=HOPELESS_S, poll_s=10)
    bench.driver.__exit__(None, None, None)
    bench.operator.kill()


def measure(bench: Bench, who: str, minutes: int, code: Path) -> None:
    """Prints what an operator that takes the runs over uses in each minute after the first 20 seconds."""
    environment = {**bench.operator.environment, **SHIPPED, "PYTHONPATH": str(code)}
    with bench.operator.log.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "lead_operator", "run"], stdout=log, stderr=log, env=environment
        )
    try:
        time.sleep(20)
        writes = bench.operator.writes()
        for minute in range(1, minutes + 1):
            began, cpu_s = time.monotonic(), cpu_seconds(process.pid)
            time.sleep(60)
            share = (cpu_seconds(process.pid) - cpu_s) / (time.monotonic() - began)
            wrote = bench.operator.writes() - writes
            print(f"{who}, minute {minute}: {100 * share:.1f} % of a core, {wrote:.0f} writes since the first, "
                  f"load {os.getloadavg()[0]:.1f}", flush=True)  # fmt: skip
    finally:
        process.kill()
        process.wait()


def cpu_seconds(pid: int) -> float:
    """Returns the CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


if __name__ == "__main__":
    main()
