"""The runs below a folder, as `lead runs DIR` lists them: a row per stage instance, with kubectl's columns."""

import fcntl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from lead_protocol.object_keys import InstanceKeys
from lead_protocol.progress_record import MAX_RECORD_BYTES, ProgressRecord
from lead_protocol.store.folder import FolderStore
from lead_protocol.strict_model import parse_or_none
from lead_trainer.engine.checkpoints.instances import instance_manifests, instances
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.local.store import NAMESPACE, PRIVATE_FOLDER, UID, store_in

COLUMNS = ("NAME", "PHASE", "EPOCH", "LOSS", "RATE", "ETA", "CKPT", "AGE")
_DEEPEST = 3  # folders between the one that is listed and a logdir
_ENDS = {"Done": "Succeeded", "Failed": "Failed", "Stopped": "Suspended"}
_INTERRUPTED = "Interrupted"  # its process is gone without a report: a kill, or a machine that went down


@dataclass(frozen=True)
class LocalRow:
    """One stage instance of a local run."""

    logdir: Path
    cells: tuple[str, ...]  # by COLUMNS


def local_rows(folder: Path) -> list[LocalRow]:
    """Returns the runs of a logdir or of the logdirs below a folder, by name; raises BadConfig where there is none."""
    if not folder.is_dir():
        raise BadConfig(f"runs: there is no folder {folder}; name one that holds logdirs of lead train")
    patterns = ["/".join(["*"] * depth + [PRIVATE_FOLDER]) for depth in range(_DEEPEST + 1)]
    logdirs = sorted({found.parent for pattern in patterns for found in folder.glob(pattern) if found.is_dir()})
    rows = [row for logdir in logdirs for row in _rows_of(logdir, folder)]
    if not rows:
        raise BadConfig(f"runs: {folder} holds no run; name a folder that holds logdirs of lead train")
    return rows


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns lines of aligned columns, without spaces at their ends."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _rows_of(logdir: Path, folder: Path) -> list[LocalRow]:
    try:
        found = instances(store_in(logdir), NAMESPACE, UID)
    except BadData:  # refused before it trained
        return []
    name = str(logdir.relative_to(folder)) if logdir != folder else logdir.resolve().name
    named = [name] if len(found) == 1 else [f"{name} ({keys.name})" for keys in found]
    return [LocalRow(logdir, _cells(logdir, keys, one)) for keys, one in zip(found, named, strict=True)]


def _cells(logdir: Path, keys: InstanceKeys, name: str) -> tuple[str, ...]:
    store = store_in(logdir)
    record, newest = _progress(store, keys), instance_manifests(store, keys)[:1]
    attempts = (logdir / PRIVATE_FOLDER / keys.attempts_prefix).glob("*")
    began = min((path.stat().st_mtime for path in attempts), default=None)
    loss = record.loss if record is not None else None
    saved = datetime.fromisoformat(newest[0].saved_at).timestamp() if newest else None
    alive = _is_trained(logdir, keys)
    moving = record if alive else None
    return (
        name,
        _phase(record, alive=alive),
        "" if record is None else f"{record.epoch}/{record.epochs}",
        "" if loss is None else f"{loss:.4g}",
        "" if moving is None or moving.samples_per_s is None else f"{moving.samples_per_s:.3g}/s",
        "" if moving is None or moving.eta_s is None else short_duration(moving.eta_s),
        "" if saved is None else short_duration(time.time() - saved),
        "" if began is None else short_duration(time.time() - began),
    )


def _phase(record: ProgressRecord | None, *, alive: bool) -> str:
    if record is not None and record.phase in _ENDS:
        return _ENDS[record.phase]
    if not alive:
        return _INTERRUPTED
    return "Starting" if record is None or record.phase in ("Starting", "Loading") else "Running"


def _progress(store: FolderStore, keys: InstanceKeys) -> ProgressRecord | None:
    found = [info.key for info in store.list(keys.progress_prefix)]
    if not found:
        return None
    return parse_or_none(ProgressRecord, store.get(max(found), max_bytes=MAX_RECORD_BYTES), MAX_RECORD_BYTES)


def _is_trained(logdir: Path, keys: InstanceKeys) -> bool:
    """Returns whether a process holds the lock of a run."""
    try:
        with (logdir / PRIVATE_FOLDER / f"{keys.name}.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False


def short_duration(seconds: float) -> str:
    """Returns a time as kubectl prints ages: `45s`, `12m`, `5h`, `3d`."""
    whole = max(0, round(seconds))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if whole >= 2 * size:
            return f"{whole // size}{unit}"
    return f"{whole}s"
