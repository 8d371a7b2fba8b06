"""How long the page takes: the curves of a large run and the table of many runs, from a cold start.

    PYTHONPATH=tests python tests/bench/page_times.py [--steps 10000] [--scalars 50] [--runs 1000]

A run of so many steps and scalars is written by the trainer's own writer, and so many runs by copying the records of a
small one. Each time is that of a new process, which has read nothing before; the medians of five are printed.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from lead_protocol.object_keys import LOCAL_NAMESPACE, InstanceKeys
from lead_protocol.progress_record import ProgressRecord, to_bytes
from lead_protocol.store.folder import FolderStore
from lead_trainer.report.tensorboard import EventFile

ROUNDS = 5
_CLIENT = """
import sys, time
from pathlib import Path
from starlette.testclient import TestClient
from lead_ui.local_runs import LocalRuns
from lead_ui.web.access import OpenAccess
from lead_ui.web.app import create_app

with TestClient(create_app(LocalRuns(Path(sys.argv[1])), OpenAccess(), ["testserver"])) as client:
    client.get("/login")  # templates and libraries are loaded
    start, worked, size = time.perf_counter(), time.process_time(), 0
    for path in sys.argv[2:]:
        answer = client.get(path)
        assert answer.status_code == 200, path
        size += len(answer.content)
    print(time.perf_counter() - start, time.process_time() - worked, size)
"""


def write_run(logdir: Path, steps: int, scalars: int) -> None:
    """Writes what `lead train` leaves of one run: its report and its event file."""
    keys = InstanceKeys(LOCAL_NAMESPACE, "local", "train", 0)
    report = ProgressRecord(attempt=1, seq=1, phase="Done", epoch=10, epochs=10, step=steps, steps=steps, loss=0.5)
    FolderStore(logdir / ".lead").put(keys.progress(1), to_bytes(report))
    events = EventFile(logdir, None, "", attempt=1, first_step=0, on=True)
    for step in range(1, steps + 1):
        events.scalars({f"loss/part_{number:02d}": 1 / step + number for number in range(scalars)}, step)
    events.close()


def measured(folder: Path, *paths: str) -> tuple[float, float, int]:
    """Returns the median seconds in which a new process answers to all paths, its CPU's, and the answers' bytes."""
    times, size = list[tuple[float, float]](), 0
    for _ in range(ROUNDS):
        argv = [sys.executable, "-c", _CLIENT, folder, *paths]
        seconds, worked, found = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
        times.append((float(seconds), float(worked)))
        size = int(found)
    return statistics.median(wall for wall, _ in times), statistics.median(cpu for _, cpu in times), size


def main() -> int:
    """Writes, measures and prints; returns 1 where something takes a second or more."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--scalars", type=int, default=50)
    parser.add_argument("--runs", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lead-page-") as name:
        large, many = Path(name) / "large", Path(name) / "many"
        write_run(large / "run", options.steps, options.scalars)
        write_run(many / "run-0000", 5, 2)
        for number in range(1, options.runs):
            shutil.copytree(many / "run-0000", many / f"run-{number:04d}")
        tags = [f"tag=loss/part_{number:02d}" for number in range(options.scalars)]
        data = [f"/runs/local/run/curves.json?{'&'.join(tags[at : at + 12])}" for at in range(0, len(tags), 12)]
        rows = {
            f"{options.steps} steps × {options.scalars} scalars: every chart": (
                large,
                "/runs/local/run",
                *data,
            ),
            "the same, what a first screen shows": (large, "/runs/local/run", data[0]),
            f"{options.runs} runs: the table": (many, "/runs"),
            f"{options.runs} runs: sorted and searched": (many, "/runs?q=run-09&sort=loss"),
        }
        slow = 0
        for what, (folder, *paths) in rows.items():
            seconds, worked, size = measured(folder, *paths)
            slow += seconds >= 1
            print(f"{what}: {seconds:.2f} s, of which {worked:.2f} s of CPU; {size / 1000:.0f} kB")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
