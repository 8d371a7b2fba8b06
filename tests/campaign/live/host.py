"""What only the local cluster's own machine can do to it: signals and cut links; as root."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from lead_testing.local_cluster import Home, cluster, containers, processes, volumes
from lead_testing.local_cluster.commands import read_output, try_output


def processes_of(pod_uid: str) -> list[tuple[int, int, bytes]]:
    """Returns (process ID here, process ID in the container, command line) of each process of a pod but its pause."""
    found = []
    for pid in _in_cgroup_of(pod_uid):
        try:
            status, command = Path(f"/proc/{pid}/status").read_text(), Path(f"/proc/{pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        inner = next(line.split()[-1] for line in status.splitlines() if line.startswith("NSpid:"))
        if command and not command.startswith(b"/pause"):
            found.append((pid, int(inner), command))
    return found


def resident_mib(pid: int) -> float:
    """Returns the resident memory of a process, MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def free_volumes() -> None:
    """Empties the local cluster's volumes whose claims are gone, for the next claims."""
    home = Home.from_environment()
    volumes.recycle_released_volumes(cluster.kubectl_argv(home, home.cluster), home.cluster / "volumes")


def part(name: str) -> int:
    """Returns the process ID of a part of the local cluster; raises LookupError where it does not run."""
    running = processes.find_running(Home.from_environment().cluster, name)
    if running is None:
        raise LookupError(f"{name} does not run")
    return running.pid


def send(pids: list[int], what: signal.Signals) -> int:
    """Sends a signal to processes, of which some may have ended; returns how many got it."""
    sent = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, what)
            sent += 1
    return sent


@contextlib.contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    """Lets processes stand still for the length of the block."""
    send(pids, signal.SIGSTOP)
    try:
        yield
    finally:
        send(pids, signal.SIGCONT)


@contextlib.contextmanager
def refused(*rules: str) -> Iterator[None]:
    """Puts rules of the packet filter before all others for the length of the block."""
    for rule in rules:
        read_output(["iptables", "-w", "-I", "FORWARD", *rule.split()])
    try:
        yield
    finally:
        for rule in rules:
            try_output(["iptables", "-w", "-D", "FORWARD", *rule.split()])


def _in_cgroup_of(pod_uid: str) -> list[int]:
    name, found = f"pod{pod_uid}", set[int]()
    for root in containers.pod_cgroups():
        for folder, _, _ in os.walk(root):
            if name in folder.split("/"):
                with contextlib.suppress(OSError):  # removed meanwhile: nothing is left in it
                    found.update(int(word) for word in (Path(folder) / "cgroup.procs").read_text().split())
    return sorted(found)
