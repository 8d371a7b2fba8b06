"""The folders of `lead train` on this machine as a source of the pages; reads files, locks nothing, writes nothing."""

import json
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

from lead_operator.decisions.formatting import format_duration, format_number, format_rate, format_time
from lead_protocol.object_keys import LOCAL_NAMESPACE
from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import StoreError
from lead_ui.assembled import attempts_of, checkpoints_of, instance_of, placements
from lead_ui.event_files.event_cache import EventCache
from lead_ui.event_files.instance_events import EventFile, StoredPicture
from lead_ui.local_caches import cache_row, found_caches, read_cache
from lead_ui.model import Cache, CacheRow, Holding, Instance, Run, RunKey, RunRow
from lead_ui.records import CONFIG_FILE, MAX_CONFIG_BYTES, MOST_CHECKPOINTS, InstanceRecords, instances_of, read_records
from lead_ui.source import InstanceCurves, SourceUnavailable, Visible

PRIVATE_FOLDER, UID = ".lead", "local"  # as `lead_trainer.local.store` names them
DEEPEST = 4  # folders below the one that was named
MOST_RUNS = 5000
_EVENTS = "events.out.tfevents."
_PHASES = {"Training": "Running", "Loading": "Starting", "Evaluating": "Running", "Done": "Succeeded"}
_ENDED = ("Done", "Failed", "Stopped")


@dataclass(frozen=True)
class Logdir:
    """The folder of one seed's run, with the store inside it."""

    folder: Path

    @property
    def store(self) -> FolderStore:
        """The store that holds its records."""
        return FolderStore(self.folder / PRIVATE_FOLDER)

    def records(self, checkpoints: int = MOST_CHECKPOINTS) -> list[InstanceRecords]:
        """Returns the records of its stage instances, each with its newest `checkpoints`; raises StoreError."""
        store = self.store
        return [read_records(store, keys, checkpoints) for keys in instances_of(store, LOCAL_NAMESPACE, UID)]

    def is_trained(self, instance: str) -> bool:
        """Returns whether a process holds the lock of a stage instance: by the kernel's table, without touching it."""
        try:
            lock = (self.folder / PRIVATE_FOLDER / f"{instance}.lock").stat()
            held = Path("/proc/locks").read_text()
        except OSError:
            return False
        device = f"{os.major(lock.st_dev):02x}:{os.minor(lock.st_dev):02x}:{lock.st_ino}"
        return any(" FLOCK " in line and f" {device} " in line for line in held.splitlines())

    def event_files(self) -> list[EventFile]:
        """Returns the event files in it."""
        with os.scandir(self.folder) as entries:
            return [EventFile(each.name, each.stat().st_size) for each in entries if each.name.startswith(_EVENTS)]

    def fetch(self, name: str, offset: int, length: int) -> bytes:
        """Returns bytes of one of its files; raises OSError."""
        with (self.folder / name).open("rb") as file:
            file.seek(offset)
            return file.read(length)

    def picture(self, stored: StoredPicture) -> bytes:
        """Returns an encoded picture of one of its files; raises OSError."""
        return self.fetch(stored.file, stored.at.offset, stored.at.length)

    def uri(self, key: str) -> str:
        """Returns the address of an object of its store."""
        return f"{self.store.url}/{key}"

    def export(self, records: InstanceRecords, best: bool) -> str:
        """Returns the command that exports its newest or its best weights."""
        return f"lead export {shlex.quote(str(self.folder))} bundle{' --best' if best else ''}"

    @property
    def created(self) -> str:
        """When it was made; empty where that cannot be read."""
        try:
            made = (self.folder / PRIVATE_FOLDER / "identity").stat().st_mtime
        except OSError:
            return ""
        return format_time(datetime.fromtimestamp(made, UTC))

    def config(self) -> dict[str, object]:
        """Returns the resolved config of the run that was started in it last; empty before it is written."""
        path = self.folder / CONFIG_FILE
        try:
            if path.stat().st_size > MAX_CONFIG_BYTES:
                return {}
            found = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


class LocalRuns:
    """Runs below one folder; what a run is called is its path below that."""

    is_cluster, is_ready = False, True

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._events = EventCache()
        self._found: dict[str, list[Logdir]] = {}
        self._lock = Lock()

    @property
    def title(self) -> str:
        """The folder whose runs are shown."""
        home = Path.home()
        return f"~/{self._root.relative_to(home)}" if self._root.is_relative_to(home) else str(self._root)

    def namespaces(self) -> Sequence[str]:
        """Returns the one namespace of what is made without a cluster."""
        return [LOCAL_NAMESPACE]

    def runs(self, visible: Visible) -> list[RunRow]:
        """Returns the runs, found again in their folders."""
        self._search()
        return [row for name in list(self._found) if (row := self.row(RunKey(LOCAL_NAMESPACE, name))) is not None]

    def row(self, key: RunKey) -> RunRow | None:
        """Returns one run's line, from its progress records alone."""
        logdirs = self._logdirs(key)
        if logdirs is None:
            return None
        try:
            found = [(logdir, records) for logdir in logdirs for records in logdir.records(checkpoints=1)]
        except StoreError as error:
            return RunRow(key=key, phase="Unknown", reason=str(error))
        return _row(key, found, logdirs)

    def run(self, key: RunKey) -> Run | None:
        """Returns one run."""
        logdirs = self._logdirs(key)
        if logdirs is None:
            return None
        try:
            found = [(logdir, records) for logdir in logdirs for records in logdir.records()]
            curves = self._curves(key, found)
        except (StoreError, OSError) as error:
            raise SourceUnavailable(f"the records of {key.name} cannot be read: {error}") from error
        instances, attempts, checkpoints, notes = list[Instance](), [], [], list[str]()
        for logdir, records in found:
            name = records.keys.name
            history, lives = curves[name].history, logdir.is_trained(name)
            instances.append(instance_of(records))
            attempts += attempts_of(records, history, lives=lives)
            checkpoints += checkpoints_of(records, logdir.uri, logdir.export)
            notes += history.faults
        newest = max(instances, key=lambda each: each.phase not in ("", "Pending"), default=None)
        return Run(
            row=_row(key, found, logdirs),
            message=newest.message if newest else "",
            instances=tuple(instances),
            attempts=tuple(attempts),
            checkpoints=tuple(checkpoints),
            caches=tuple(cache.key.name for cache in self._caches_of(logdirs)),
            config=logdirs[0].config(),
            notes=tuple(notes),
        )

    def curves(self, key: RunKey) -> dict[str, InstanceCurves] | None:
        """Returns scalars and pictures of one run."""
        logdirs = self._logdirs(key)
        if logdirs is None:
            return None
        try:
            return self._curves(key, [(logdir, records) for logdir in logdirs for records in logdir.records()])
        except (StoreError, OSError) as error:
            raise SourceUnavailable(f"the event files of {key.name} cannot be read: {error}") from error

    def logs(self, key: RunKey, pod: str) -> str | None:
        """A local run logs to its terminal."""
        return None

    def caches(self, visible: Visible) -> list[CacheRow]:
        """Returns the caches that the runs read, and those below the folder."""
        self._search()
        return self._caches_of([logdir for logdirs in self._found.values() for logdir in logdirs])

    def cache(self, key: RunKey) -> Cache | None:
        """Returns one cache, by its digest."""
        self._search()
        logdirs = [logdir for each in self._found.values() for logdir in each]
        for store, digest in found_caches(self._root, [logdir.config() for logdir in logdirs]):
            if digest == key.name:
                return read_cache(store, digest, self._users(digest))
        return None

    def holdings(self, visible: Visible) -> list[Holding]:
        """Returns what the runs' folders hold."""
        self._search()
        found = list[Holding]()
        for name, logdirs in self._found.items():
            files = [path for logdir in logdirs for path in _files(logdir.folder)]
            size = sum({(each.st_dev, each.st_ino): each.st_size for each in files}.values())
            found.append(Holding(namespace=LOCAL_NAMESPACE, kind="run", name=name, uid=name, objects=len(files),
                                 size_bytes=size))  # fmt: skip
        for cache in self.caches(visible):
            used = "" if cache.used_by else "no run here reads it"
            found.append(Holding(namespace=LOCAL_NAMESPACE, kind="cache", name=cache.key.name, uid=cache.digest,
                                 objects=0, size_bytes=cache.size_bytes or 0, may_go=used))  # fmt: skip
        return found

    def _caches_of(self, logdirs: Sequence[Logdir]) -> list[CacheRow]:
        configs = [logdir.config() for logdir in logdirs]
        return [cache_row(store, digest, self._users(digest)) for store, digest in found_caches(self._root, configs)]

    def _users(self, digest: str) -> tuple[str, ...]:
        users = list[str]()
        for name, logdirs in self._found.items():
            try:
                manifests = [m for logdir in logdirs for records in logdir.records() for m in records.manifests[:1]]
            except StoreError:
                continue
            if any(digest in manifest.dataset_digests for manifest in manifests):
                users.append(name)
        return tuple(users)

    def _curves(self, key: RunKey, found: Sequence[tuple[Logdir, InstanceRecords]]) -> dict[str, InstanceCurves]:
        instances = [instance_of(records) for _, records in found]
        places = placements(instances)
        newest = {logdir.folder: instance.name for (logdir, _), instance in zip(found, instances, strict=True)}
        curves = dict[str, InstanceCurves]()
        for (logdir, _), instance in zip(found, instances, strict=True):
            # Event files lie in the folder itself: where several instances share it, the last one has them.
            files = logdir.event_files() if newest[logdir.folder] == instance.name else []
            history = self._events.history(f"{key}/{instance.name}", files, logdir.fetch)
            curves[instance.name] = InstanceCurves(instance, places[instance.name], history, logdir.picture)
        return curves

    def _logdirs(self, key: RunKey) -> list[Logdir] | None:
        if key.namespace != LOCAL_NAMESPACE:
            return None
        if key.name not in self._found:
            self._search()
        return self._found.get(key.name)

    def _search(self) -> None:
        with self._lock:
            found: dict[str, list[Logdir]] = {}
            for folder in _run_folders(self._root, DEEPEST):
                run = folder.parent if folder.name.startswith("seed_") and folder != self._root else folder
                name = run.relative_to(self._root).as_posix().replace("/", "--")
                found.setdefault(self._root.name if name == "." else name, []).append(Logdir(folder))
                if len(found) >= MOST_RUNS:
                    break
            self._found = found


def _run_folders(folder: Path, deepest: int) -> Iterator[Path]:
    """Yields the folders that hold a run's store, not below each other, in the order of their names."""
    if (folder / PRIVATE_FOLDER / "runs").is_dir():
        yield folder
        return
    if not deepest:
        return
    try:
        with os.scandir(folder) as entries:
            below = sorted(each.name for each in entries if each.is_dir(follow_symlinks=False) and each.name[0] != ".")
    except OSError:
        return
    for name in below:
        yield from _run_folders(folder / name, deepest - 1)


def _row(key: RunKey, found: Sequence[tuple[Logdir, InstanceRecords]], logdirs: Sequence[Logdir]) -> RunRow:
    reported = [(logdir, records) for logdir, records in found if records.newest is not None]
    if not reported:
        return RunRow(key=key, phase="Pending", created=logdirs[0].created)
    running = [(logdir, records) for logdir, records in reported if logdir.is_trained(records.keys.name)]
    _, records = (running or reported)[-1]
    report = records.newest
    assert report is not None
    phase = _PHASES.get(report.phase, report.phase)
    if not running and report.phase not in _ENDED:
        phase = "Interrupted"
    newest = records.manifests[0] if records.manifests else None
    lives = bool(running)
    return RunRow(
        key=key,
        recipe=newest.recipe if newest else "",
        phase=phase,
        reason=report.message if report.phase == "Failed" else "",
        stage=f"seed {records.keys.seed}" if len(found) > 1 else records.keys.stage,
        epoch=f"{report.epoch}/{report.epochs}",
        percent=min(100, 100 * report.step // report.steps) if report.steps else None,
        loss=format_number(report.loss) if report.loss is not None else "",
        rate=format_rate(report.samples_per_s) if lives and report.samples_per_s is not None else "",
        eta=format_duration(report.eta_s) if lives and report.eta_s else "",
        checkpoint_time=newest.saved_at if newest else "",
        restarts=sum(max(0, len(each.attempts) - 1) for _, each in reported),
        created=logdirs[0].created,
        advisories=tuple(advisory.message for advisory in report.advisories),
    )


def _files(folder: Path) -> Iterator[os.stat_result]:
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                yield (Path(path) / name).lstat()
            except OSError:
                continue
