"""A run that trains on a live cluster: how far it is, what it has committed, and a rank of it killed."""

import json
import re
from itertools import pairwise
from typing import Any

from lead_protocol.object_keys import InstanceKeys
from lead_protocol.store.object_store import ObjectStore
from lead_testing.installed import Installed
from lead_testing.statuses import newest_entry

# Sends a signal to the newest python process of the pod: the training process, a child of the pod's main process.
_SIGNAL_THE_TRAINER = (
    "import os,glob,signal;"
    "ids=[int(p.split('/')[2]) for p in glob.glob('/proc/[0-9]*/cmdline')"
    " if b'lead_trainer' in open(p,'rb').read() or b'/lead' in open(p,'rb').read()];"
    "os.kill(max(i for i in ids if i not in (1, os.getpid())), signal.%s);"
    "print('sent', flush=True)"
)


def kill_a_rank(installed: Installed, run: str, rank: int) -> None:
    """Kills the training process of the run's live pod of that rank, which ends the pod and perhaps the exec too."""
    _send(installed, run, rank, "SIGKILL")


def stop_a_rank(installed: Installed, run: str, rank: int) -> None:
    """Lets the training process of the run's live pod of that rank stand still."""
    _send(installed, run, rank, "SIGSTOP")


def _send(installed: Installed, run: str, rank: int, signal: str) -> None:
    script = _SIGNAL_THE_TRAINER % signal

    def sent() -> bool:
        pod = live_pod(installed, run, rank)
        return "sent" in installed.run("kubectl", "exec", pod, "--", "python3", "-c", script).stdout

    installed.wait_for(f"rank {rank} of {run} to get {signal}", sent)


def epoch_of(installed: Installed, run: str, stage: str = "") -> int:
    """Returns the epochs completed by the run's current stage, 0 while unknown or while it is another than `stage`."""
    status = installed.status("trainingrun", run)
    entry = newest_entry(status)
    if stage and entry.get("name") != stage:
        return 0
    return int(entry["progress"].get("epoch", 0))


def live_pod(installed: Installed, run: str, rank: int) -> str:
    """Waits for the run's live pod of that rank and returns its name."""

    def look() -> str:
        pods = installed.items("pods", f"lead.dev/run={run},lead.dev/rank={rank}")
        return next((str(p["metadata"]["name"]) for p in pods if p["status"]["phase"] == "Running"), "")

    return installed.wait_for(f"a live pod of rank {rank} of {run}", look)


def keys_of(installed: Installed, run: str, stage: str, seed: int = 0) -> InstanceKeys:
    """Returns the object keys of a stage instance of a run."""
    uid = installed.get("trainingrun", run)["metadata"]["uid"]
    return InstanceKeys(installed.namespace, uid, stage, seed)


def newest_manifest(store: ObjectStore, installed: Installed, run: str, stage: str, seed: int = 0) -> dict[str, Any]:
    """Returns the newest checkpoint manifest of a stage instance of a run."""
    newest = max(info.key for info in store.list(keys_of(installed, run, stage, seed).manifests_prefix))
    return dict(json.loads(store.get(newest, max_bytes=2**20)))


def printed_row(installed: Installed, run: str) -> dict[str, str]:
    """Returns what `kubectl get` prints of a run, by column."""
    head, line = installed.read("get", "trainingrun", run).splitlines()
    starts = [*(name.start() for name in re.finditer(r"\S+", head)), max(len(head), len(line))]
    cells = [line[start:end].strip() for start, end in pairwise(starts)]
    return dict(zip(head.split(), cells, strict=True))
