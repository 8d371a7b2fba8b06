"""Rank 0's writer: one small record, overwritten every few seconds, that the operator pulls.

A thread writes it, so a slow store never slows training; failures are logged once and retried. The last record also
goes to the termination log on every way out, and every rank that fails leaves its sentence there.
"""

import contextlib
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import structlog

from lead_protocol.progress_record import MESSAGE_CHARS, ProgressRecord, to_bytes
from lead_protocol.store.object_store import ObjectStore, StoreError

INTERVAL_S = 5.0
_LAST_WRITE_S = 10.0

log = structlog.get_logger(__name__)


class ProgressWriter:
    """The progress record of one attempt and the thread that writes it."""

    def __init__(self, store: ObjectStore, key: str, record: ProgressRecord, termination_log: Path | None) -> None:
        """Starts writing to `key`."""
        self._store, self._key, self._termination_log = store, key, termination_log
        self._record, self._written_seq, self._reachable = record, -1, True
        self._changed, self._closing = threading.Condition(), False
        self._urgent = True
        self._thread = threading.Thread(target=self._write_on, name="progress", daemon=True)
        self._thread.start()

    @property
    def record(self) -> ProgressRecord:
        """The newest record."""
        return self._record

    def update(self, *, urgent: bool = False, **fields: Any) -> None:
        """Changes fields of the record; an urgent change (phase, epoch, checkpoint) is written at once."""
        with self._changed:
            if "message" in fields:
                fields["message"] = str(fields["message"])[:MESSAGE_CHARS]
            update = {**fields, "seq": self._record.seq + 1}
            self._record = ProgressRecord.model_validate(self._record.model_dump() | update)
            self._urgent = self._urgent or urgent
            if urgent:
                self._changed.notify()

    def close(self, phase: str, message: str = "") -> None:
        """Writes the last record: to the termination log first, then, for a short while, to the store."""
        self.update(phase=phase, message=message, eta_s=0.0 if phase == "Done" else None)
        write_termination_log(self._termination_log, self._record)
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(_LAST_WRITE_S)

    def _write_on(self) -> None:
        while True:
            with self._changed:
                if not self._urgent and not self._closing:
                    self._changed.wait(INTERVAL_S)
                self._urgent, closing, record = False, self._closing, self._record
            if record.seq != self._written_seq:
                self._write(record)
            if closing:
                return

    def _write(self, record: ProgressRecord) -> None:
        try:
            self._store.put(self._key, to_bytes(record))
            self._written_seq = record.seq
            self._reachable = True
        except StoreError as error:
            if self._reachable:
                log.warning("progress is not written for now; training goes on", error=str(error))
            self._reachable = False


def write_termination_log(path: Path | None, record: ProgressRecord) -> None:
    """Writes the final report of this process where the kubelet reads it; a path that cannot be written is skipped."""
    if path is None:
        return
    with contextlib.suppress(OSError):  # outside a pod there is no such file, and the exit code is enough
        path.write_bytes(to_bytes(record))


class Pace:
    """Steps per second over the last minute, without the time spent on checkpoints."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque(maxlen=512)

    def restart(self) -> None:
        """Forgets what was measured, because something else than training took time."""
        self._marks.clear()

    def mark(self, step: int) -> float | None:
        """Notes a finished step; returns steps per second, or None while there is too little data."""
        now = time.monotonic()
        self._marks.append((now, step))
        while now - self._marks[0][0] > 60.0 and len(self._marks) > 2:
            self._marks.popleft()
        elapsed_s, steps = now - self._marks[0][0], step - self._marks[0][1]
        return steps / elapsed_s if steps > 0 and elapsed_s > 0 else None
