"""How full a session cache may make its volume, whoever else writes to it: above the high mark nothing is added.

To make room, files are removed until the low mark is reached, so that not every new shard begins a removal.
"""

import errno
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mark:
    """Shares that may be in use, from 0 to 1."""

    of_volume: float  # by anybody
    of_limit: float  # of the cache's own limit, where it has one


HIGH = Mark(of_volume=0.95, of_limit=1.0)
LOW = Mark(of_volume=0.90, of_limit=0.95)


def room_bytes(folder: Path, mark: Mark) -> int:
    """Returns how many bytes the folder's volume may take until it is at the mark; negative above it."""
    volume = os.statvfs(folder)
    used = (volume.f_blocks - volume.f_bfree) * volume.f_frsize
    usable = used + volume.f_bavail * volume.f_frsize  # without what is kept for root
    return int(mark.of_volume * usable) - used


def volume_is_full(folder: Path) -> OSError:
    """Returns the error for a volume that others have filled to the high mark."""
    return OSError(errno.ENOSPC, f"others have filled its volume to {HIGH.of_volume:.0%}", str(folder))
