"""`lead tensorboard`: TensorBoard over the runs of a namespace, straight from the store, by their names."""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

import structlog

from lead_protocol.exit_codes import ExitCode
from lead_protocol.store.object_store import StoreError
from lead_trainer.cli_store import store_of
from lead_trainer.errors import BadConfig
from lead_trainer.report.event_mirror import EventMirror

EVERYWHERE = "*"  # every address of both families

log = structlog.get_logger(__name__)


def serve(namespace: str, url: str | None, host: str, port: int, every_s: float, environ: Mapping[str, str]) -> int:
    """Shows the event files until it is stopped; returns TensorBoard's exit code where that ends by itself.

    Raises BadConfig where the store is not named, StoreError where it refuses at the beginning: later its outages are
    warnings, and what was brought stays in sight.
    """
    if every_s < 1:
        raise BadConfig(f"tensorboard: --every is {every_s:g}, expected at least 1 second")
    with tempfile.TemporaryDirectory(prefix="lead-tensorboard-") as folder:
        mirror = EventMirror(store_of(url, environ), namespace, Path(folder))
        log.info("event files", namespace=namespace, bytes=mirror.refresh())
        where = ["--bind_all"] if host == EVERYWHERE else [f"--host={host}"]
        pace = [f"--reload_interval={max(1, round(every_s / 2))}", "--load_fast=false"]  # the fast one holds files open
        names = [f"--logdir={folder}", f"--port={port}", f"--window_title=LEAD {namespace}"]
        page = subprocess.Popen([sys.executable, "-m", "tensorboard.main", *names, *where, *pace])
        signal.signal(signal.SIGTERM, _interrupt)
        try:
            while True:
                try:
                    return page.wait(timeout=every_s)
                except subprocess.TimeoutExpired:
                    _refresh(mirror)
        except KeyboardInterrupt:
            return ExitCode.DONE
        finally:
            page.terminate()
            page.wait()


def _refresh(mirror: EventMirror) -> None:
    try:
        mirror.refresh()
    except (StoreError, OSError) as error:
        log.warning("event files are not brought for now", error=str(error))


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
