"""`Local()`: the same calls as `Cluster()`, with `lead train` on this machine."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, overload

from lead_client.cache import Cache
from lead_client.checkpoints import Instance
from lead_client.errors import AlreadyExists, InvalidObject, NotFound, NotSupported, Unavailable, missing_extra
from lead_client.local.folder import CACHES, RunFolder, read_json, write_json
from lead_client.local.plan import StageRun, stage_runs, without_effect
from lead_client.local.results import local_instance, status_of
from lead_client.objects.dataset_cache_status import DatasetCacheStatus
from lead_client.objects.manifests import DatasetCache, Manifest, TrainingRun
from lead_client.objects.training_run_status import TrainingRunStatus
from lead_client.run import Run

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_POLL_S = 0.3
_START_S, _STOP_S = 30.0, 600.0  # until a new worker has its lock; until one that was stopped has committed


class Local:
    """A folder of runs on this machine, each trained by a process of its own, which goes on when this one ends.

    `keys` are keys of the recipe that name places here, such as `carla_root="data/example"`: a DatasetCache's `source`
    is a place in a cluster's bucket. `nodes` and `procsPerNode` of a run become processes on this machine.
    """

    def __init__(self, folder: str | Path, **keys: Any) -> None:
        self.folder, self.keys = Path(folder).absolute(), keys

    @overload
    def submit(self, manifest: TrainingRun) -> LocalRun: ...

    @overload
    def submit(self, manifest: DatasetCache) -> LocalCache: ...

    @overload
    def submit(self, manifest: Manifest) -> LocalRun | LocalCache: ...

    def submit(self, manifest: Manifest) -> LocalRun | LocalCache:
        """Records a manifest and begins to train; the same one again changes nothing.

        Raises NotSupported for what only a cluster can do, AlreadyExists where the name has another manifest. A wrong
        key of the recipe is reported by the run: `wait` raises RunFailed with reason BadConfig.
        """
        if not _NAME.fullmatch(manifest.name):
            raise InvalidObject(f"{manifest!r}: metadata.name: expected lower case letters, digits and -")
        if isinstance(manifest, DatasetCache):
            path = self.folder / CACHES / f"{manifest.name}.json"
            _create(path, {"manifest": manifest.document()}, manifest)
            return LocalCache(self, manifest.name)
        assert isinstance(manifest, TrainingRun)
        if find_spec("lead_trainer") is None or find_spec("torch") is None:
            raise missing_extra("torch", "trainer")
        caches = {each.name: each.config for each in self._caches()}
        stage_runs(manifest, caches, self.keys)  # NotSupported, before anything is written
        folder = RunFolder(self.folder / manifest.name)
        if not folder.manifest.exists() and folder.root.exists():
            raise AlreadyExists(f"{folder.root} exists, and no run of it is recorded; choose another name")
        if ignored := without_effect(manifest):
            warnings.warn(f"TrainingRun {manifest.name}: without effect on this machine: {', '.join(ignored)}",
                          stacklevel=2)  # fmt: skip
        record = {"manifest": manifest.document(), "caches": caches, "here": self.keys, "directory": str(Path.cwd())}
        created = _create(folder.manifest, record, manifest)
        run = LocalRun(self, manifest.name)
        if created and not manifest.spec.suspend:
            run.resume()
        return run

    def get(self, name: str) -> LocalRun:
        """Returns the run of this name; raises NotFound."""
        run = LocalRun(self, name)
        run.plan()
        return run

    def cache(self, name: str) -> LocalCache:
        """Returns the cache of this name; raises NotFound."""
        cache = LocalCache(self, name)
        cache.status()
        return cache

    def list(self) -> Sequence[LocalRun]:
        """Returns the runs of the folder, the oldest first."""
        found = sorted(self.folder.glob("*/.run/manifest.json"), key=lambda path: path.stat().st_mtime)
        return [LocalRun(self, path.parent.parent.name) for path in found]

    def _caches(self) -> Sequence[LocalCache]:
        return [LocalCache(self, path.stem) for path in sorted((self.folder / CACHES).glob("*.json"))]


class LocalRun(Run):
    """A run on this machine."""

    def __init__(self, local: Local, name: str) -> None:
        super().__init__(name)
        self.folder = RunFolder(local.folder / name)

    def plan(self) -> list[StageRun]:
        """Returns each stage and seed of the run, in order; raises NotFound."""
        try:
            record = self.folder.read()
        except FileNotFoundError:
            known = ", ".join(sorted(path.parent.parent.name for path in
                                     self.folder.root.parent.glob("*/.run/manifest.json")))  # fmt: skip
            raise NotFound(f"there is no run {self.name} in {self.folder.root.parent}; "
                           f"{f'it has {known}' if known else 'it has none'}") from None  # fmt: skip
        return stage_runs(TrainingRun.from_document(record["manifest"]), record["caches"], record["here"])

    def status(self) -> TrainingRunStatus:
        """Returns the status, with the phases of a cluster's."""
        return status_of(self.folder, self.plan())

    def changes(self, timeout: float | None = None) -> Iterator[TrainingRunStatus]:
        """Yields the status now and after every change."""
        deadline = None if timeout is None else time.monotonic() + timeout
        last: TrainingRunStatus | None = None
        while last is None or deadline is None or time.monotonic() < deadline:
            if (status := self.status()) != last:
                yield (last := status)
            if status.phase in self.ended:
                return
            time.sleep(_POLL_S)

    def suspend(self) -> None:
        """Asks the training process to commit a checkpoint and to end; returns at once."""
        self.plan()
        if (worker := self.folder.worker()) is not None:
            os.kill(worker, signal.SIGTERM)

    def resume(self) -> None:
        """Begins to train, or goes on after `suspend`, a crash or a restart of this machine."""
        self.plan()
        if self.folder.worker() is not None and not self.folder.state().suspended:
            return
        self._await_end()
        command = [sys.executable, "-m", "lead_client.local.worker", str(self.folder.root)]
        with (self.folder.records / "worker.log").open("ab") as log:
            worker = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + _START_S
        while self.folder.worker() is None and worker.poll() is None:
            if time.monotonic() > deadline:
                raise Unavailable(f"{' '.join(command)} has not started within {_START_S:g} s")
            time.sleep(0.05)
        if worker.poll():
            tail = (self.folder.records / "worker.log").read_text(errors="replace").strip().splitlines()[-1:]
            raise Unavailable(f"the worker of run {self.name} has ended: {''.join(tail)}")

    def scale(self, nodes: int) -> None:
        """Always raises NotSupported: the number of processes is fixed when a run is submitted."""
        raise NotSupported(f"TrainingRun {self.name}: a local run keeps its number of processes; submit one of another "
                           f"name with nodes={nodes!r}")  # fmt: skip

    def logs(self) -> Iterator[str]:
        """Yields what each stage and seed has logged, in order, each line with its stage and seed."""
        for one in self.plan():
            path = self.folder.log(one.name)
            if path.exists():
                with path.open(encoding="utf-8", errors="replace") as log:
                    for line in log:
                        yield f"{one.name}: {line.rstrip()}"

    def instances(self) -> Sequence[Instance]:
        """Returns each stage and seed that has begun."""
        found = [local_instance(self.folder.logdir(one.name), one.stage, one.seed) for one in self.plan()]
        return [each for each in found if each is not None]

    def delete(self) -> None:
        """Stops the run and forgets it; its checkpoints stay in their folders."""
        self.suspend()
        self._await_end()
        shutil.rmtree(self.folder.records)

    def _await_end(self) -> None:
        deadline = time.monotonic() + _STOP_S
        while self.folder.worker() is not None:
            if time.monotonic() > deadline:
                raise Unavailable(f"run {self.name} has not stopped within {_STOP_S:g} s; its log is in "
                                  f"{self.folder.records}")  # fmt: skip
            time.sleep(0.1)


class LocalCache(Cache):
    """A DatasetCache on this machine: its config; the first run that reads it builds it."""

    def __init__(self, local: Local, name: str) -> None:
        super().__init__(name)
        self._path = local.folder / CACHES / f"{name}.json"

    @property
    def config(self) -> dict[str, Any]:
        """Its preparation keys."""
        return dict(self._manifest().spec.config or {})

    def _manifest(self) -> DatasetCache:
        try:
            document = read_json(self._path)["manifest"]
        except FileNotFoundError:
            raise NotFound(f"there is no DatasetCache {self.name} in {self._path.parent.parent}") from None
        return DatasetCache.from_document(document)

    def status(self) -> DatasetCacheStatus:
        """Returns Ready: there is nothing to wait for before the first run."""
        self._manifest()
        return DatasetCacheStatus.model_validate({"phase": "Ready", "reason": "BuiltByTheFirstRun"})

    def changes(self, timeout: float | None = None) -> Iterator[DatasetCacheStatus]:
        """Yields the status once."""
        yield self.status()

    def delete(self) -> None:
        """Forgets the cache; what runs have built beside the raw data stays."""
        self._manifest()
        self._path.unlink(missing_ok=True)


def _create(path: Path, record: dict[str, Any], manifest: Manifest) -> bool:
    """Writes a record unless it exists; returns whether it is new, raises AlreadyExists where another one is there."""
    if path.exists():
        found = read_json(path)
        if found["manifest"] != record["manifest"]:
            raise AlreadyExists(f"{manifest!r} exists with another manifest; choose another name, or delete() it first")
        return False
    write_json(path, record)
    return True
