"""Building a cache, in a pod or on a laptop: the tree, the recipe, and where progress is reported.

A pod's share is one `BuildJob`; a laptop's is the only one. Both end in `data.build.build_share`.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import structlog

from lead_protocol.environment import SOURCE_DIR
from lead_protocol.exit_codes import ExitCode
from lead_protocol.job import BuildJob
from lead_protocol.job_access import job_access
from lead_protocol.progress_record import MESSAGE_CHARS, BuildRecord
from lead_protocol.source_listing import is_cached_view, is_picture, is_raw
from lead_protocol.store.object_store import ObjectStore, StoreError
from lead_trainer.contract.installed import load_recipe
from lead_trainer.contract.raw_data import SourceFile, SourceTree
from lead_trainer.data.build import build_share
from lead_trainer.data.preparation_results import config_keys
from lead_trainer.data.source_tree import AtWork, FolderTree, StoreTree, ignore_progress
from lead_trainer.engine.attempt.build_check import check_build
from lead_trainer.report.console import open_log
from lead_trainer.storage import open_store

REPEAT_S = 30.0  # of a build that is at work and has no news

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class RawTree:
    """A tree without what LEAD or we derived from it, and without what its preparation does not read.

    Where LEAD's persistent cache has taken the place of the pictures, its entries are the tree's.
    """

    whole: SourceTree
    reads: tuple[str, ...] = ("",)  # how the paths begin

    @cached_property
    def _files(self) -> tuple[SourceFile, ...]:
        files = self.whole.files()
        with_cache = not any(is_picture(file.path) for file in files)
        return tuple(
            file
            for file in files
            if (is_raw(file.path) or (with_cache and is_cached_view(file.path))) and file.path.startswith(self.reads)
        )

    def files(self) -> Sequence[SourceFile]:
        """Returns every raw file, sorted by path."""
        return self._files

    def read(self, path: str) -> bytes:
        """Returns one file's bytes."""
        return self.whole.read(path)

    def local_file(self, path: str) -> Path:
        """Returns where one file lies on this machine's disk."""
        return self.whole.local_file(path)


def source_tree(
    job: BuildJob, store: ObjectStore, at_work: AtWork = ignore_progress, *, links_may_leave: bool = False
) -> RawTree:
    """Returns the raw tree a build reads: of a bucket everything, of a folder what its preparation asks for.

    `links_may_leave` is for a person's own run on this machine: see `FolderTree`. Such a run often writes
    beside its data; a bucket's prefix is watched as a whole by the operator.
    """
    if job.source.kind == "store":
        return RawTree(StoreTree(store, job.source.prefix, at_work))
    recipe = load_recipe(job.recipe)
    root, mounted = Path(job.source.path), Path(SOURCE_DIR)
    volume = mounted if root.is_relative_to(mounted) else None
    tree = FolderTree(root, at_work, links_may_leave=links_may_leave, volume=volume)
    return RawTree(tree, tuple(recipe.required_preparation.reads(config_keys(recipe, job.config))))


def build(
    job: BuildJob,
    store: ObjectStore,
    on_progress: Callable[[BuildRecord], None],
    at_work: AtWork = ignore_progress,
    *,
    at_home: bool = False,
    asked: Sequence[str] = (),
) -> BuildRecord:
    """Builds this job's share of a cache; returns the last progress, whose digest names the cache.

    `at_work` is called with every file that is listed or read, by any thread. `at_home` is for a person's own run on
    this machine: links may leave the tree, and a cache that holds more collections is used as it is. `asked` are the
    collections that such a run asked for.
    """
    tree = source_tree(job, store, at_work, links_may_leave=at_home)
    return build_share(job, store, tree, load_recipe(job.recipe), on_progress, takes_another=at_home, asked=asked)


def run_build_job(job: BuildJob, termination_log: Path, environ: Mapping[str, str]) -> int:
    """Builds a pod's share; writes progress to the store and the final report to the termination log."""
    stage: dict[str, Any] = {"stage": job.stage} if job.stage else {}
    open_log(cache=job.owner.name, **stage, worker=job.index, attempt=job.attempt)
    store = open_store(environ, job_access(job))
    writer = _BuildProgressWriter(job, store, termination_log)
    try:
        check_build(job, load_recipe(job.recipe))
        build(job, store, writer.write, writer.at_work)
    except BaseException as error:
        writer.fail(error)
        raise
    return ExitCode.DONE


class _BuildProgressWriter:
    """The progress of one build pod, by any thread; a store that does not take it does not stop the build.

    A pod without new reports counts as hung, so while files are listed or read the last record is
    written again under a new number. A pod that is blocked repeats nothing.
    """

    def __init__(self, job: BuildJob, store: ObjectStore, termination_log: Path) -> None:
        self._key = job.progress_key
        self._store, self._termination_log = store, termination_log
        self._record = BuildRecord(attempt=job.attempt, seq=0, phase="Listing")
        self._reachable, self._seq, self._written_at = True, 0, time.monotonic()
        self._writing, self._process = threading.Lock(), os.getpid()

    def write(self, record: BuildRecord) -> None:
        """Writes one record."""
        with self._writing:
            if record.phase != self._record.phase:
                log.info(
                    record.phase.lower(), digest=record.digest[:12], routes=record.routes_total, size=record.size_bytes
                )
            self._record = record
            self._write()

    def at_work(self) -> None:
        """Writes the last record again where that is due; a forked child's reading shows in the samples it makes."""
        if time.monotonic() - self._written_at < REPEAT_S or os.getpid() != self._process:
            return
        if self._writing.acquire(blocking=False):
            try:
                self._write()
            finally:
                self._writing.release()

    def fail(self, error: BaseException) -> None:
        """Writes the last record of a build that failed."""
        message = (str(error) or type(error).__name__)[:MESSAGE_CHARS]
        self.write(self._record.model_copy(update={"phase": "Failed", "message": message}))

    def _write(self) -> None:
        self._seq, self._written_at = self._seq + 1, time.monotonic()
        text = self._record.model_copy(update={"seq": self._seq}).model_dump_json()
        if self._record.phase in ("Done", "Failed"):
            self._write_termination_log(text)
        try:
            self._store.put(self._key, text.encode())
            self._reachable = True
        except StoreError as error:
            if self._reachable:
                log.warning("progress is not written for now; the build goes on", error=str(error))
            self._reachable = False

    def _write_termination_log(self, text: str) -> None:
        try:
            self._termination_log.write_text(text)
        except OSError as error:
            log.warning("the termination log cannot be written", error=str(error))
