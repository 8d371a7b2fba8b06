"""`lead tensorboard`: TensorBoard over a logdir, or over the runs of a namespace, straight from the store, by name."""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import structlog

from lead_protocol.exit_codes import ExitCode
from lead_protocol.object_keys import runs_prefix
from lead_protocol.store.object_store import StoreError
from lead_trainer.errors import BadConfig
from lead_trainer.local.store import logdirs_of
from lead_trainer.report.console import open_log
from lead_trainer.report.event_mirror import EventMirror
from lead_trainer.storage import named_store

EVERYWHERE = "*"  # every address of both families
_EVENTS = "events.out.tfevents.*"

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Page:
    """Where the page is served, and how often it is renewed."""

    host: str
    port: int
    every_s: float

    def __post_init__(self) -> None:
        """Raises BadConfig for a pace that cannot be kept."""
        if self.every_s < 1:
            raise BadConfig(f"tensorboard: --every is {self.every_s:g}, expected at least 1 second")

    def command(self, folder: Path, title: str) -> list[str]:
        """Returns TensorBoard's command line over a folder."""
        where = ["--bind_all"] if self.host == EVERYWHERE else [f"--host={self.host}"]
        # The fast loader holds files open.
        pace = [f"--reload_interval={max(1, round(self.every_s / 2))}", "--load_fast=false"]
        names = [f"--logdir={folder}", f"--port={self.port}", f"--window_title=LEAD {title}"]
        return [sys.executable, "-m", "tensorboard.main", *names, *where, *pace]


def show_curves(
    logdir: Path | None,
    named: Path | None,
    namespace: str,
    store: str | None,
    host: str,
    port: int,
    every: float,
    environ: Mapping[str, str],
) -> int:
    """Shows a logdir where one is named, else the runs of a namespace; returns the exit code."""
    page = Page(host, port, every)
    if (folder := logdir or named) is not None:
        return serve_folder(folder, page)
    return serve(namespace, store, page, environ)


def serve_folder(logdir: Path, page: Page) -> int:
    """Shows the event files of a logdir, which may still be written, until it is stopped; returns the exit code.

    Raises BadConfig for a folder that holds neither event files nor a run that may write some.
    """
    open_log()
    if not logdir.is_dir():
        raise BadConfig(f"tensorboard: there is no folder {logdir}; name the logdir of a lead train")
    files = sum(1 for _ in logdir.rglob(_EVENTS))
    if not files and not logdirs_of(logdir):
        raise BadConfig(f"tensorboard: {logdir} {_what_it_is(logdir)}; name the logdir of a lead train")
    if not files:
        log.warning(f"{logdir} holds no event file yet; curves appear when training begins, unless the run has "
                    "tensorboard=false or had no space on its disk, see its log")  # fmt: skip
    return _until_stopped(page.command(logdir, logdir.name), page, lambda: None)


def _what_it_is(folder: Path) -> str:
    if (folder / "caches").is_dir() or (folder / "cache/caches").is_dir():
        return "holds a cache, which has no curves"
    if (folder / "runs").is_dir():
        return f"is a store: write lead tensorboard --store file://{folder.resolve()} -n NAMESPACE"
    return "holds no event file and no run"


def serve(namespace: str, url: str | None, page: Page, environ: Mapping[str, str]) -> int:
    """Shows the event files until it is stopped; returns TensorBoard's exit code where that ends by itself.

    Raises BadConfig where the store is not named, StoreError where it refuses at the beginning: later its outages are
    warnings, and fetched files stay visible.
    """
    open_log()
    with tempfile.TemporaryDirectory(prefix="lead-tensorboard-") as folder:
        store = named_store(url, environ)
        mirror = EventMirror(store, namespace, Path(folder))
        found = mirror.refresh()
        log.info("event files", namespace=namespace, bytes=found)
        if not found:
            log.warning(f"{store.url}/{runs_prefix(namespace)} holds no event file yet; curves appear when a run of "
                        "this namespace trains, -n names another one")  # fmt: skip
        return _until_stopped(page.command(Path(folder), namespace), page, lambda: _refresh(mirror))


def _until_stopped(command: list[str], page: Page, refresh: Callable[[], None]) -> int:
    process = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        while True:
            try:
                return process.wait(timeout=page.every_s)
            except subprocess.TimeoutExpired:
                refresh()
    except KeyboardInterrupt:
        return ExitCode.DONE
    finally:
        process.terminate()
        process.wait()


def _refresh(mirror: EventMirror) -> None:
    try:
        mirror.refresh()
    except (StoreError, OSError) as error:
        log.warning("event files cannot be fetched for now", error=str(error))


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
