"""What a session cache, which maps files and holds their locks, asks of its node: a disk of its own, and open files.

Readers of a file that another node removes from a shared volume end in SIGBUS, and not every such volume passes locks
on to the other nodes, which SQLite needs too.
"""

import os
import resource
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
OF_SEVERAL_NODES = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "glusterfs", "fuse.glusterfs", "fuse.ceph-fuse",
    "fuse.s3fs", "fuse.sshfs", "fuse.juicefs", "fuse.mount-s3", "fuse.rclone",
})  # fmt: skip


def refuse_shared_volume(folder: Path) -> None:
    """Raises OSError where the folder, which exists, lies on a volume that several nodes may have mounted."""
    kind = volume_kind(folder)
    if kind in OF_SEVERAL_NODES:
        raise OSError(f"{folder} lies on {kind}, a volume of several nodes; give the session cache a disk of its node")


def volume_kind(folder: Path) -> str:
    """Returns the type of the file system that holds a folder, empty where the system does not report it."""
    status = folder.stat()
    device = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    if not MOUNTS.exists():
        return ""
    for line in MOUNTS.read_text().splitlines():
        before, _, after = line.partition(" - ")
        if before.split()[2] == device:
            return after.split()[0]
    return ""


def most_files() -> int:
    """Lets this process open as many files as the system allows it, and returns that number.

    A shard in use is an open file, and many systems start a program with 1024 until it asks for more.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
