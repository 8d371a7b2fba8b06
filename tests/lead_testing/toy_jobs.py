"""Makers of toy jobs and of worker processes that train them; used by the engine's and the command line's tests."""

import os
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from lead_protocol import environment
from lead_protocol.job import CheckpointPolicy, OwnerIdentity, TrainJob
from lead_protocol.manifests import CheckpointManifest
from lead_protocol.object_keys import InstanceKeys
from lead_protocol.progress_record import ProgressRecord, parse_progress
from lead_protocol.store.object_store import ObjectStore
from lead_testing.ports import free_port
from lead_testing.toy_recipe import install_toy_recipe

UID = "7d2f1c7e-6f0a-4a3e-9b51-2a60a1e0c001"
KEYS = InstanceKeys("team-a", UID, "train", 0)


def a_toy_job(attempt: int = 1, *, epochs: int = 3, processes: int = 1, **changes: Any) -> TrainJob:
    """Returns a job that trains the toy recipe: 6 steps an epoch, a checkpoint after each."""
    policy = {"every_steps": changes.pop("every_steps", 0), "resume": changes.pop("resume", "Auto")}
    policy |= {"keep_last": changes.pop("keep_last", 3)}
    return TrainJob(
        owner=OwnerIdentity(namespace="team-a", name="toy", uid=UID),
        stage=changes.pop("stage", "train"),
        seed=0,
        attempt=attempt,
        recipe="toy",
        config=changes.pop("config", {}),
        epochs=epochs,
        nodes=1,
        procs_per_node=processes,
        datasets=[],
        checkpoint=CheckpointPolicy(**policy),
        **changes,
    )


def manifests(store: ObjectStore, keys: InstanceKeys = KEYS) -> list[CheckpointManifest]:
    """Returns all manifests of a stage instance, oldest first."""
    found = list(store.list(keys.manifests_prefix))
    return [CheckpointManifest.model_validate_json(store.get(info.key, max_bytes=10**6)) for info in found]


def progress_record(store: ObjectStore, attempt: int = 1) -> ProgressRecord:
    """Returns the progress record that an attempt left in the store; fails where there is none or it is invalid."""
    record = parse_progress(store.get(KEYS.progress(attempt), max_bytes=4096))
    assert record is not None
    return record


def run_together(group: Sequence[BaseProcess], seconds: float) -> list[int | None]:
    """Runs processes side by side, for so long at most; returns their exit codes, negative for a signal."""
    for process in group:
        process.start()
    for process in group:
        process.join(seconds)
        process.kill()
        process.join()
    return [process.exitcode for process in group]


def toy_environment(folder: Path, store: Path) -> dict[str, str]:
    """Returns an environment in which the toy recipe is installed and the store is a folder."""
    site = install_toy_recipe(folder / "site")
    return {
        **os.environ,
        "PYTHONPATH": str(site),
        "OMP_NUM_THREADS": "1",
        environment.STORE_URL: f"file://{store}",
        environment.MASTER_PORT: str(free_port()),
        environment.MASTER_ADDR: "127.0.0.1",
    }


def run_pod(folder: Path, store: Path, job: TrainJob, *, signal: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a pod's main process to its end; `signal` is what the toy recipe sends itself."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.json").write_text(job.model_dump_json())
    return subprocess.run(
        pod_command(folder),
        env={**toy_environment(folder, store), "LEAD_TOY_SIGNAL": signal},
        capture_output=True,
        text=True,
        timeout=300,
    )


def pod_command(folder: Path) -> Sequence[str]:
    """Returns the command of a pod whose files are all below `folder`."""
    return [
        sys.executable, "-m", "lead_trainer", "pod",
        "--job", str(folder / "job.json"),
        "--scratch", str(folder / "scratch"),
        "--session-cache", str(folder / "session-cache"),
        "--termination-log", str(folder / "termination-log"),
    ]  # fmt: skip
