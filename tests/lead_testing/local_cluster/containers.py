"""Ends what containerd has started: containers, namespaces, mounts and cgroups. Called by `down` alone."""

import contextlib
import os
import shutil
import signal
import time
from pathlib import Path

from lead_testing.local_cluster import addresses as at
from lead_testing.local_cluster.commands import read_output, try_output
from lead_testing.local_cluster.errors import StepFailed

CGROUPS = Path("/sys/fs/cgroup")
POD_CGROUP = "kubepods"
END_TIMEOUT_S = 30.0


def kill_pods() -> None:
    """Kills every process of every pod, found by cgroup: this works with containerd dead as well."""
    deadline = time.monotonic() + END_TIMEOUT_S
    while pids := pod_processes():
        for pid in pids:
            _kill(pid)
        if time.monotonic() > deadline:
            raise StepFailed(f"processes {pids} of pods do not end after SIGKILL; look at them with `ps -fp`")
        time.sleep(0.05)


def pod_processes() -> list[int]:
    """Lists the processes in the pods' cgroups."""
    found: set[int] = set()
    for root in pod_cgroups():
        for folder, _, _ in os.walk(root):  # passes over folders that runc removes meanwhile
            with contextlib.suppress(OSError):  # removed meanwhile: nothing is left in it
                found.update(int(word) for word in (Path(folder) / "cgroup.procs").read_text().split())
    return sorted(found)


def pod_cgroups() -> list[Path]:
    """Lists the roots of the pods' cgroups, one a controller in the old hierarchy."""
    return [path for path in (CGROUPS / POD_CGROUP, *CGROUPS.glob(f"*/{POD_CGROUP}")) if path.is_dir()]


def remove_containers() -> None:
    """Takes dead containers out of containerd's records, with their snapshots; the images stay."""
    ctr = ["ctr", "--address", str(at.CONTAINERD_SOCKET), "--namespace", "k8s.io"]
    for task in try_output([*ctr, "tasks", "list", "-q"]).split():
        try_output([*ctr, "tasks", "delete", "--force", task])
    containers = try_output([*ctr, "containers", "list", "-q"]).split()
    if containers:
        read_output([*ctr, "containers", "delete", *containers])


def unmount_below(*folders: Path) -> None:
    """Unmounts everything below the folders, the innermost first."""
    for target in mounts_below(*folders):
        read_output(["umount", "--lazy", target])


def mounts_below(*folders: Path) -> list[str]:
    """Lists the mount points below the folders, the innermost first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    targets = [line.split()[4].encode().decode("unicode_escape") for line in lines]
    return [target for target in reversed(targets) if any(Path(target).is_relative_to(folder) for folder in folders)]


def remove_pod_cgroups() -> None:
    """Removes the pods' empty cgroups, leaves first; runc may be removing some of them at the same time."""
    deadline = time.monotonic() + END_TIMEOUT_S
    while roots := pod_cgroups():
        for folder in (folder for root in roots for folder, _, _ in os.walk(root, topdown=False)):
            with contextlib.suppress(OSError):  # gone, or busy for a moment: the next round sees
                Path(folder).rmdir()
        if time.monotonic() > deadline:
            raise StepFailed(f"cgroups {', '.join(map(str, roots))} stay busy; look for their processes")
        time.sleep(0.05)


def remove_network_records() -> None:
    """Removes what CNI noted about our network outside our folders."""
    for folder in (Path("/var/lib/cni/results"), Path("/var/lib/cni/cache/results")):
        for entry in folder.glob("lead-*"):
            entry.unlink()


def remove_folder(folder: Path) -> None:
    """Removes a folder tree, if it is there; raises StepFailed where somebody goes on writing there."""
    deadline = time.monotonic() + END_TIMEOUT_S
    while folder.exists():
        try:
            shutil.rmtree(folder)
        except OSError as error:
            if time.monotonic() > deadline:
                raise StepFailed(f"{folder} cannot be removed: {error}") from error
            time.sleep(0.1)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
