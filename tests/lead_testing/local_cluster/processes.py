"""Starts, finds and stops the cluster's long-lived processes; called by the control plane and the cluster.

A process is found by a mark in its environment, not by a pid file: a mark cannot be stale, and a start that was
interrupted at any moment still leaves a process that the next start or stop finds.
"""

import contextlib
import hashlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

MARK = "LEAD_LOCAL_CLUSTER_PART"
POLL_S = 0.05
START_S = 5.0


@dataclass(frozen=True)
class Part:
    """One process of a cluster: how it is started, and what it reads (so that a changed file restarts it)."""

    name: str
    argv: tuple[str, ...]
    log: Path
    reads: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def version(self) -> str:
        """Digests command line and configuration files, 12 hexadecimal digits."""
        digest = hashlib.sha256("\0".join(self.argv).encode())
        for path in self.reads:
            digest.update(path.read_bytes())
        return digest.hexdigest()[:12]


@dataclass(frozen=True)
class Running:
    """A living process of a part, and the version it was started with."""

    pid: int
    version: str


def find_running(state: Path, name: str) -> Running | None:
    """Finds the process of a part of the cluster in folder `state`; children that inherited its mark do not count."""
    prefix = f"{MARK}={state}|{name}|"
    for pid, marks in _marked_processes():
        if marks.startswith(prefix) and _leads_its_session(pid):
            return Running(pid, marks.removeprefix(prefix))
    return None


def find_all_marked(state: Path) -> list[int]:
    """Finds every process of the cluster in folder `state`, helpers that inherited a mark included."""
    return [pid for pid, mark in _marked_processes() if mark.startswith(f"{MARK}={state}|")]


def start(state: Path, part: Part) -> "subprocess.Popen[bytes]":
    """Starts a part in a session of its own, so that it outlives the starter and its terminal."""
    part.log.parent.mkdir(parents=True, exist_ok=True)
    mark = {MARK: f"{state}|{part.name}|{part.version()}"}
    with part.log.open("ab") as log:
        process = subprocess.Popen(
            part.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env={**_plain_environment(), **part.environment, **mark},
        )  # fmt: skip
    deadline = time.monotonic() + START_S  # the kernel shows a new program's environment a moment late
    while process.poll() is None and find_running(state, part.name) is None and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return process


def stop(pid: int, *, grace_s: float = 10, first: signal.Signals = signal.SIGTERM) -> None:
    """Ends one process: asks, waits, then kills; returns when it is gone."""
    for wanted, patience_s in ((first, grace_s), (signal.SIGKILL, 10.0)):
        try:
            os.kill(pid, wanted)
        except ProcessLookupError:
            return
        if wait_until_gone(pid, patience_s):
            return


def wait_until_gone(pid: int, timeout_s: float) -> bool:
    """Waits until a process has ended (reaping it where it is our child); tells whether it has."""
    deadline = time.monotonic() + timeout_s
    while is_alive(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def is_alive(pid: int) -> bool:
    """Tells whether a process runs; one that has ended and waits to be reaped does not."""
    with contextlib.suppress(ChildProcessError):  # not ours: started by an earlier process, which is the usual case
        os.waitpid(pid, os.WNOHANG)
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def _plain_environment() -> dict[str, str]:
    """Keeps servers independent of who started them: no proxies, no kubeconfig, no credentials."""
    return {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TZ") if name in os.environ}


def _marked_processes() -> list[tuple[int, str]]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):  # none where a system has no /proc: kind runs there too
        try:
            variables = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
        except (PermissionError, FileNotFoundError, ProcessLookupError):
            continue  # somebody else's process, or one that has just ended: neither is ours
        found += [(int(entry.name), word) for word in variables if word.startswith(f"{MARK}=")]
    return sorted(found)


def _leads_its_session(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False
