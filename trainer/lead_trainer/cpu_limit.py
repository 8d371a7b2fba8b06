"""How many cores this process may use: those it is bound to, and no more than its container's CPU limit.

libgomp and torch count the cores alone: in a container with two of 64, they would start 64 threads.
"""

import os
from collections.abc import MutableMapping
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup/cpu.max")
THREADS = "OMP_NUM_THREADS"
MOST_LOADER_THREADS = 16


def cpu_share(processes: int = 1, cgroup: Path = CGROUP) -> int:
    """Returns how many threads each of `processes` may use of this container's CPU limit, at least 1."""
    available = float(len(os.sched_getaffinity(0)))
    if cgroup.is_file():
        quota, _, period = cgroup.read_text().strip().partition(" ")
        if quota.isdigit() and period.isdigit():
            available = min(available, int(quota) / int(period))
    return max(1, int(available) // processes)


def loader_threads() -> int:
    """Returns how many threads load samples by default: one per core, up to a number that feeds any GPU."""
    return min(MOST_LOADER_THREADS, cpu_share())


def limit_threads(environ: MutableMapping[str, str], cgroup: Path = CGROUP) -> None:
    """Sets OMP_NUM_THREADS where the cores are more than this process may use; not where somebody has set it.

    Called before torch is imported, which reads it once.
    """
    share = cpu_share(int(environ.get("LOCAL_WORLD_SIZE", "1")), cgroup)
    if share < len(os.sched_getaffinity(0)):
        environ.setdefault(THREADS, str(share))
