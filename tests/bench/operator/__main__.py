"""Our operator and kubeflow's training-operator v1.8.1, by turns on one API server: `make bench-operator ARGS="…"`.

Prints a table and leaves a JSON file with every number. Without arguments it takes about an hour: 5 repeats of one run,
one run of 64 pods and 100 runs; one of 1,000 runs; one life. `--quick` is a smoke test of a minute or two, whose
numbers mean nothing.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from bench.operator import report
from bench.operator.cluster import BenchCluster
from bench.operator.systems import all_systems
from bench.operator.trials import Trials
from lead_testing.local_cluster.progress import step

QUICK = {"repeats": 1, "singles": 3, "wide": 8, "runs": 5, "many": 10, "lives": 2, "idle_s": 10.0}


def main() -> int:
    """Returns 1 where ours misses a goal, and says which."""
    parser = argparse.ArgumentParser(prog="make bench-operator", description=__doc__.splitlines()[0])
    parser.add_argument("--systems", nargs="+", default=["ours", "theirs", "theirs-10"], metavar="SYSTEM",
                        choices=["ours", "theirs", "theirs-10"], help="of ours, theirs, theirs-10")  # fmt: skip
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--many-repeats", type=int, default=1, help="of the largest burst")
    parser.add_argument("--singles", type=int, default=20, help="runs one after another in each repeat")
    parser.add_argument("--wide", type=int, default=64, help="pods of the wide run")
    parser.add_argument("--runs", type=int, default=100, help="runs at once in each repeat")
    parser.add_argument("--many", type=int, default=1000, help="runs of the largest burst; 0 leaves it out")
    parser.add_argument("--lives", type=int, default=10, help="runs whose writes are counted to their end")
    parser.add_argument("--idle-s", type=float, default=60.0, help="how long nothing happens")
    parser.add_argument("--quick", action="store_true", help="one repeat of everything with a few runs")
    parser.add_argument("--out", type=Path, default=Path("outputs/bench-operator.json"))
    options = parser.parse_args()
    if options.quick:
        vars(options).update(QUICK)
    with tempfile.TemporaryDirectory(prefix="lead-bench-operator-") as folder:
        results = measure(Path(folder), options)
    measures = report.lines(options.runs, options.wide, options.many)
    missed = report.missed_goals(results, measures, "ours") if "ours" in results else []
    print(report.table(results, measures))
    print("\n".join(f"missed: {sentence}" for sentence in missed) or "all goals met")
    return 1 if missed else 0


def measure(folder: Path, options: argparse.Namespace) -> report.Results:
    """Runs all trials, the systems by turns; keeps what is known in the JSON file, and stops early at Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # else a plain kill would leave the servers behind
    began = datetime.now(UTC)
    results: report.Results = {}
    with suppress(KeyboardInterrupt), BenchCluster(folder) as cluster:
        systems = {name: system for name, system in all_systems(cluster, folder).items() if name in options.systems}
        results |= {system.name: {} for system in systems.values()}
        plan: list[tuple[str, tuple[float, ...]]] = [("life", (options.lives,))] * bool(options.lives)
        plan += [("bursts", (options.singles, options.wide, options.runs))] * options.repeats
        plan += [("many", (options.many, options.idle_s))] * (options.many_repeats if options.many else 0)
        for number, (trial, arguments) in enumerate(plan):
            for name in options.systems if number % 2 == 0 else reversed(options.systems):
                system = systems[name]
                with step(f"{number + 1}/{len(plan)} {trial}: {system.name}, load {os.getloadavg()[0]:.1f}"):
                    try:
                        found = getattr(Trials(cluster, system), trial)(*arguments)
                    finally:
                        system.stop()
                results[system.name].setdefault(trial, []).append(found)
                write(options, results, began)
    return results


def write(options: argparse.Namespace, results: report.Results, began: datetime) -> None:
    """Writes everything known so far."""
    options.out.parent.mkdir(parents=True, exist_ok=True)
    settings = {key: str(value) if isinstance(value, Path) else value for key, value in vars(options).items()}
    facts = {"began": began.isoformat(), "machine": report.machine(), "settings": settings, "results": results}
    options.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
