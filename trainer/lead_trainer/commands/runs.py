"""`lead runs`: the runs of a folder, or the TrainingRuns of a cluster, with the course of their losses.

A cluster is asked by kubectl, which uses the user's credentials and context.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lead_protocol import environment
from lead_protocol.exit_codes import ExitCode
from lead_protocol.object_keys import InstanceKeys
from lead_protocol.store.object_store import ObjectStore, StoreError
from lead_trainer.errors import BadConfig
from lead_trainer.local.listing import COLUMNS, local_rows, table
from lead_trainer.programs import program
from lead_trainer.storage import open_store

SPARKS = "▁▂▃▄▅▆▇█"
LOSS_TAG = "epoch/loss"
HEADING = "LOSS BY EPOCH"
_MOST_EVENT_BYTES = 64 * 1024 * 1024


def list_runs(folder: Path | None, namespace: str, environ: Mapping[str, str]) -> int:
    """Prints the runs of a folder, else what `kubectl get trainingruns` prints, with the course of the loss.

    Of a cluster's runs the course is known where the store is named. Raises BadConfig for a folder without runs.
    """
    if folder is not None:
        if namespace:
            raise BadConfig(f"runs: -n {namespace} is of a cluster, and {folder} is a folder; leave one of them out")
        print("\n".join(_local_table(folder)))
        return ExitCode.DONE
    kubectl = program("kubectl", "lead runs asks the cluster by it; install it, or use kubectl elsewhere")
    command = [kubectl, "get", "trainingruns", *(["-n", namespace] if namespace else ["--all-namespaces"])]
    lines = _answer(command).splitlines()
    store = open_store(environ) if environ.get(environment.STORE_URL) else None
    if store is None:
        print("\n".join(lines))
        print(f"set {environment.STORE_URL} to see the course of the loss", file=sys.stderr)
        return ExitCode.DONE
    runs = json.loads(_answer([*command, "-o", "json"]))["items"]
    courses = {_name(run, bool(namespace)): sparkline(loss_history(store, run)) for run in runs}
    width = max((len(line) for line in lines), default=0)
    for line in lines:
        name = tuple(line.split()[: 1 if namespace else 2])
        print(f"{line:<{width}}  {courses.get(name, HEADING if line is lines[0] else '')}")
    return ExitCode.DONE


def _local_table(folder: Path) -> list[str]:
    rows = local_rows(folder)
    courses = [sparkline(_epoch_losses(row.logdir)) for row in rows]
    return table([(*COLUMNS, HEADING), *((*row.cells, course) for row, course in zip(rows, courses, strict=True))])


def _name(run: Mapping[str, Any], short: bool) -> tuple[str, ...]:
    metadata = run["metadata"]
    return (metadata["name"],) if short else (metadata["namespace"], metadata["name"])


def _answer(command: Sequence[str]) -> str:
    answer = subprocess.run(command, capture_output=True, text=True)
    if answer.returncode:
        raise BadConfig(f"{' '.join(command[1:3])}: {answer.stderr.strip() or answer.returncode}")
    return answer.stdout


def loss_history(store: ObjectStore, run: Mapping[str, Any]) -> list[float]:
    """Returns the mean loss of each epoch of the stage instance that a run began last, from its event files, if any."""
    metadata, stages = run["metadata"], run.get("status", {}).get("stages", [])
    begun = [stage for stage in stages if stage.get("attempt")]
    if not begun:
        return []
    keys = InstanceKeys(metadata["namespace"], metadata["uid"], begun[-1]["name"], begun[-1]["seed"])
    try:
        infos = [info for info in store.list(keys.tensorboard_prefix) if "tfevents" in info.key]
        with tempfile.TemporaryDirectory(prefix="lead-events-") as folder:
            for info in infos:
                path = Path(folder) / info.key.rsplit("/", 1)[-1]
                path.write_bytes(store.get(info.key, max_bytes=_MOST_EVENT_BYTES))
            return _epoch_losses(Path(folder))
    except StoreError:
        return []


def _epoch_losses(folder: Path) -> list[float]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    if LOSS_TAG not in events.Tags()["scalars"]:
        return []
    by_step = {event.step: event.value for event in events.Scalars(LOSS_TAG)}
    return [by_step[step] for step in sorted(by_step)]


def sparkline(values: Sequence[float], width: int = 32) -> str:
    """Returns the course of the last `width` values as one line of blocks."""
    shown = list(values)[-width:]
    if not shown:
        return ""
    low, high = min(shown), max(shown)
    scale = (len(SPARKS) - 1) / (high - low) if high > low else 0.0
    return "".join(SPARKS[round((value - low) * scale)] for value in shown)
