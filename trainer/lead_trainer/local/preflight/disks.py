"""Whether checkpoints and caches fit on their disks."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lead_trainer.local.preflight.finding import Finding

CHECK = "disk"
GIB = 2**30
STATES = 3  # a checkpoint: the parameters, and two moments of each in the optimizer
FULL_SHARE = 0.95  # of the free space: with less left over a disk is as good as full


@dataclass(frozen=True)
class Need:
    """Bytes that a run writes below a folder, at most; None where `unknown` holds why they are not known."""

    what: str
    folder: Path
    bytes: int | None
    unknown: str = ""

    def __str__(self) -> str:
        return f"{self.what} {f'not computed: {self.unknown}' if self.bytes is None else _size(self.bytes)}"


def checkpoint_bytes(parameters: int | None, kept: int) -> int | None:
    """Returns the size of `kept` checkpoints and of the one that is written beside them, in fp32."""
    if parameters is None:
        return None
    return 4 * STATES * parameters * (kept + 1)


def disk_findings(needs: Sequence[Need]) -> list[Finding]:
    """Returns one finding a disk; failed where a folder cannot be written, or the needs on its disk do not fit."""
    findings: list[Finding] = []
    disks: dict[int, list[tuple[Path, Need]]] = {}
    for need in needs:
        there = existing(need.folder)
        if not os.access(there, os.W_OK):
            text = f"{there} cannot be written, but the run needs it for {need.what}; choose another folder"
            findings.append(Finding(CHECK, "failed", text))
            continue
        disks.setdefault(there.stat().st_dev, []).append((there, need))
    for found in disks.values():
        free = shutil.disk_usage(found[0][0]).free
        findings.append(disk_finding(found[0][0], [need for _, need in found], free))
    return findings


def disk_finding(folder: Path, needs: Sequence[Need], free: int) -> Finding:
    """Judges one disk by its free bytes."""
    known = [need.bytes for need in needs if need.bytes is not None]
    wanted, parts = sum(known), ", ".join(map(str, needs))
    if not known:
        return Finding(CHECK, "ok", f"{folder}: {_size(free)} free; {parts}")
    about = "about" if len(known) == len(needs) else "at least"
    text = f"{folder}: {_size(free)} free, the run writes {about} {_size(wanted)} ({parts})"
    if wanted > FULL_SHARE * free:
        return Finding(CHECK, "failed", f"{text}; free space there, or choose another folder")
    return Finding(CHECK, "ok", text)


def existing(folder: Path) -> Path:
    """Returns the folder, or the nearest one above it that exists."""
    return next(each for each in (folder.absolute(), *folder.absolute().parents) if each.is_dir())


def _size(count: int) -> str:
    return f"{count / GIB:.2f} GiB"
