"""One pod's share of building a cache: scan, digest, its parts, and the manifest once every part of every pod is there.

A job with a stage makes that stage's fields of its samples and no part; later ones read them (`staged_tree`).
It writes below builds/ alone. A cache is published from there by whoever owns caches/: `cache_publication`.

Every write is create-only and named by content, and every step first checks what exists, so the same call may be
killed and repeated at any point and by any number of pods: the manifest comes out byte for byte the same.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import structlog

from lead_protocol.job import BuildJob
from lead_protocol.manifests import CacheManifest, StoredObject, sha256_hex
from lead_protocol.object_keys import CacheKeys
from lead_protocol.progress_record import BuildRecord
from lead_protocol.store.object_store import ObjectStore
from lead_trainer.contract.preparation import Preparation
from lead_trainer.contract.raw_data import Scan, SourceTree
from lead_trainer.contract.recipe import Recipe
from lead_trainer.data import preparation_results
from lead_trainer.data.build_finish import finished_manifest, stage_manifest
from lead_trainer.data.build_parts import PartRecord, part_record
from lead_trainer.data.build_plan import PART_BYTES, BuildPlan, Part, plan_build
from lead_trainer.data.build_stages import check_stages
from lead_trainer.data.build_workers import Encoded, encode_all
from lead_trainer.data.cache_tables import ROUTE_COLUMN, collection_table, verdict_table, write_table
from lead_trainer.data.held_caches import why_none_fits
from lead_trainer.data.part_counts import PartCounts, summed
from lead_trainer.data.record import encode_record
from lead_trainer.data.scan_pieces import gather_pieces
from lead_trainer.data.shard import write_shard
from lead_trainer.data.staged_tree import StagedTree, outputs_there
from lead_trainer.data.wanted_cache import WantedCache, source_of, wanted_cache
from lead_trainer.errors import BadData

OnProgress = Callable[[BuildRecord], None]
DEFAULT_THREADS = 4
SHOWN_REASONS = 4  # of routes that are left out
REPORT_EVERY_S = 5.0  # within a part, and while the parts are asked for

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class _Build:
    """What every step of one build needs."""

    wanted: WantedCache
    store: ObjectStore
    tree: StagedTree
    recipe: Recipe[Any]
    threads: int
    processes: int | None
    takes_another: bool
    asked: Sequence[str]

    @property
    def job(self) -> BuildJob:
        return self.wanted.job

    @property
    def config(self) -> Mapping[str, Any]:
        return self.wanted.config

    @property
    def digest(self) -> str:
        return self.wanted.digest

    @property
    def keys(self) -> CacheKeys:
        return self.wanted.keys


def build_share(
    job: BuildJob,
    store: ObjectStore,
    tree: SourceTree,
    recipe: Recipe[Any],
    on_progress: OnProgress,
    *,
    part_bytes: int = PART_BYTES,
    threads: int = DEFAULT_THREADS,
    processes: int | None = None,
    takes_another: bool = False,
    asked: Sequence[str] = (),
) -> BuildRecord:
    """Builds this pod's parts and, when they were the last ones, stages the manifest; returns the last progress.

    `asked` are the collections to name where no frame is usable: a cache on a laptop holds more than a run asks for.
    With `takes_another` a published cache that holds more collections is as good: the last progress has its digest.
    Records are made by `processes` (None: as many as there are cores and work for them), or by `threads`.
    Raises BadData for an empty or damaged dataset and for a digest other than `expect_digest`.
    """
    job = _with_collections(job, recipe)
    report = _Reporter(job, on_progress)
    report.update(phase="Listing")
    check_stages(job, recipe)
    wanted = wanted_cache(job, recipe, tree.files())
    staged = StagedTree(tree, store, wanted.keys, tuple(job.made))
    build = _Build(wanted, store, staged, recipe, threads, processes, takes_another, asked)
    report.update(digest=wanted.digest)
    manifest = wanted.made(store, takes_another=takes_another)
    was_there = manifest is not None
    if job.stage and manifest is None:
        return _make_stage(build, report)
    why_none = ""
    if manifest is None:
        _warn_of_another_cache(build)
        manifest, why_none = _build_parts(build, report, part_bytes)
    manifest = manifest or wanted.made(store, takes_another=takes_another)  # meanwhile
    if manifest is None:
        return report.update(phase="Done", message=why_none)
    done = report.update(
        phase="Done",
        digest=manifest.digest,
        routes_total=manifest.routes.total,
        routes_kept=manifest.routes.kept,
        samples=manifest.samples,
        shards_total=len(manifest.shards),
        shards_done=len(manifest.shards),
        size_bytes=manifest.size_bytes,
    )
    if not (takes_another and was_there):  # a complete cache may lie where a person can only read
        store.put(job.keys.result(job.generation), done.model_dump_json().encode())
    return done


def _warn_of_another_cache(build: _Build) -> None:
    """Logs, where a run's values ask for a cache and one of the same files is there, which values differ."""
    if not build.takes_another:
        return
    unlike = why_none_fits(
        build.store,
        build.keys.namespace,
        recipe=build.job.recipe,
        source_sha256=build.wanted.source_sha256,
        builder=build.recipe.required_preparation.version,
        config=build.config,
        collections=build.job.collections,
    )
    if unlike:
        log.warning(unlike)


def _with_collections(job: BuildJob, recipe: Recipe[Any]) -> BuildJob:
    """Names the recipe's collections where the job names none, before the digest: both spellings are one cache."""
    if job.collections:
        return job
    return job.model_copy(update={"collections": preparation_results.collections_for(recipe, job.config)})


def _scan(build: _Build, report: "_Reporter") -> Scan:
    """Returns what the tree holds for the job's collections; raises BadData where that is no sample."""
    _share_scan(build, report)
    scan = preparation_results.scanned(build.recipe, build.tree, build.config, build.job.collections)
    kept = sum(verdict.kept for verdict in scan.verdicts)
    if not scan.samples:
        reasons = Counter[str]()
        for verdict in scan.verdicts:
            reasons[verdict.reason] += verdict.frames
        counted = ", ".join(f"{reason}: {frames} frames" for reason, frames in reasons.most_common(SHOWN_REASONS))
        raise BadData(
            f"dataset {source_of(build.job)}: no frame of {len(scan.verdicts)} routes is usable "
            f"({kept} routes kept) for {', '.join(build.asked or build.job.collections)} ({counted}); add what is "
            "missing to the dataset, or correct the config"
        )
    build.tree.number(scan.samples)
    report.update(phase="Building", routes_total=len(scan.verdicts), routes_kept=kept, samples=len(scan.samples))
    return scan


def _share_scan(build: _Build, report: "_Reporter") -> None:
    """Takes what other pods have read of the pieces of the source, and reads this pod's share for them."""
    preparation, tree = build.recipe.required_preparation, build.tree
    if build.job.parallelism > 1 and (names := preparation.scan_pieces(tree, build.config)):
        tree.pieces = gather_pieces(
            names, build.job.index, build.job.parallelism, build.store, build.keys,
            lambda name: preparation.scan_piece(tree, build.config, name), report.at_work,
        )  # fmt: skip


def _make_stage(build: _Build, report: "_Reporter") -> BuildRecord:
    """Makes what is missing of this share of the job's stage; returns the last progress."""
    stage, scan = build.job.stage, _scan(build, report)
    share = range(build.job.index, len(scan.samples), build.job.parallelism)
    if lacking := build.tree.lacking(share):
        return report.update(phase="Done", message=lacking)
    missing = sorted(set(share) - outputs_there(build.store, build.keys, stage))
    report.update(share_samples=len(share), samples_done=len(share) - len(missing))

    def encoded(number: int) -> tuple[int, bytes]:
        fields = preparation_results.stage_fields(build.recipe, build.tree, build.config, stage, scan.samples[number])
        return number, encode_record(number, fields)

    for number, data in report.counted(_encoded(build, scan, missing, encoded)):
        build.store.create(build.keys.stage_output(stage, number), data)  # or another attempt's, which was first
    return report.update(phase="Done", samples_done=len(share), message=f"this share of stage {stage} is made")


def _build_parts(build: _Build, report: "_Reporter", part_bytes: int) -> tuple[CacheManifest | None, str]:
    """Makes the missing parts of this share; returns the manifest when every worker's parts are there, or why not."""
    scan = _scan(build, report)
    plan = plan_build(scan, build.digest, part_bytes)
    share = plan.share(build.job.index, build.job.parallelism)
    if lacking := build.tree.lacking(int(number) for part in share for number in part.samples):
        return None, lacking  # without a manifest all stages begin again
    size, done, samples = 0, 0, 0
    report.update(shards_total=len(plan.parts), share_samples=sum(len(part.samples) for part in share))
    with tempfile.TemporaryDirectory(prefix="lead-build-") as folder:
        for part in share:
            found = part_record(build.store, build.keys, part.number)
            record = found or _make_part(build, scan, part, Path(folder), report)
            done, size, samples = done + 1, size + record.size_bytes, samples + record.records
            report.update(shards_done=done, size_bytes=size, samples_done=samples)
    return _finish(build, scan, plan, report), "this share is built; other workers are still at theirs"


def _encoded(build: _Build, scan: Scan, numbers: Sequence[int], encoded: Callable[[int], Encoded]) -> Iterator[Encoded]:
    """Yields the records of some samples, made by processes or threads as the config allows."""

    def name(number: int) -> str:
        key = scan.samples[number]
        return f"{key.route} frame {key.frame:04d}"

    preparation = build.recipe.required_preparation
    alone = preparation.stays_in_process(build.config)
    return encode_all(numbers, encoded, name, threads=build.threads, processes=0 if alone else build.processes)


def _make_part(build: _Build, scan: Scan, part: Part, folder: Path, report: "_Reporter") -> PartRecord:
    """Uploads one shard and its routes' metas, then the record that they are complete."""

    def encoded(number: int) -> tuple[int, bytes]:
        fields = preparation_results.record(build.recipe, build.tree, build.config, scan.samples[number])
        return number, encode_record(number, fields)

    metas = _upload_metas(build, part) if part.routes else None  # processes for records share what this opens
    path = folder / "shard.part"
    numbers = [int(number) for number in part.samples]
    records = _encoded(build, scan, numbers, encoded)
    counts = _part_counts(build, scan)
    shard = write_shard(path, report.counted(counts.passing(records)))
    if shard.records != len(numbers):
        raise BadData(f"part {part.number} has {shard.records} records, expected {len(numbers)}; build again")
    staged = build.keys.shard(part.number, shard.sha256)
    if not build.store.create_file(staged, path, sha256=shard.sha256):
        raise BadData(f"{build.store.url}/{staged} holds other bytes than its name claims; delete it and build again")
    entry = StoredObject(key=build.keys.as_published(staged), size=shard.size, sha256=shard.sha256)
    record = PartRecord(shard=entry, records=shard.records, metas=metas, counts=counts.as_lists())
    build.store.create(build.keys.shard_record(part.number), record.model_dump_json().encode())
    return part_record(build.store, build.keys, part.number) or record  # another worker's record, if it was first


def _upload_metas(build: _Build, part: Part) -> StoredObject:
    tables = []
    for route, frames in part.routes:
        table = preparation_results.route_metas(build.recipe, build.tree, build.config, route, frames)
        tables.append(table.append_column(ROUTE_COLUMN, pa.array([route] * len(frames), pa.string())))
    data = write_table(pa.concat_tables(tables))
    return _create(build, build.keys.metas(part.number, sha256_hex(data)), data)


def _finish(build: _Build, scan: Scan, plan: BuildPlan, report: "_Reporter") -> CacheManifest | None:
    """Stages the manifest if every part is complete; any worker may, and all of them write the same bytes."""
    parts = [part_record(build.store, build.keys, part.number) for part in report.repeating(plan.parts)]
    complete = [part for part in parts if part is not None]
    if len(complete) < len(parts):
        return None
    routes = _create(build, build.keys.routes, write_table(verdict_table(scan.verdicts)))
    tables = {
        collection.name: _create(
            build,
            build.keys.bucket(collection.name),
            write_table(collection_table(collection, scan.samples, plan.placement)),
        )
        for collection in scan.collections
    }
    manifest = finished_manifest(
        digest=build.digest,
        recipe=build.job.recipe,
        builder=build.recipe.required_preparation.version,
        config=build.config,
        source_sha256=build.wanted.source_sha256,
        scan=scan,
        routes=routes,
        collections=tables,
        parts=complete,
        facts=_facts(build, complete),
    )
    return stage_manifest(build.store, build.keys, manifest)


def _part_counts(build: _Build, scan: Scan) -> PartCounts:
    if type(build.recipe.required_preparation).counts is Preparation.counts:
        return PartCounts(None)  # no record is decoded for nothing
    return PartCounts(
        lambda number, fields: preparation_results.counts(build.recipe, build.config, scan.samples[number], fields)
    )


def _facts(build: _Build, parts: Iterable[PartRecord]) -> Mapping[str, Sequence[float]]:
    return preparation_results.facts(build.recipe, build.config, summed(part.counts for part in parts))


def _create(build: _Build, key: str, data: bytes) -> StoredObject:
    """Writes a small object once; raises BadData where other bytes lie under its key."""
    if not build.store.create(key, data):
        raise BadData(
            f"{build.store.url}/{key} holds other bytes than this build makes; was it built by another version of the "
            "trainer image? Delete the objects of this unfinished cache and build again"
        )
    return StoredObject(key=build.keys.as_published(key), size=len(data), sha256=sha256_hex(data))


class _Reporter:
    """Fills in and numbers the progress records of one build pod."""

    def __init__(self, job: BuildJob, on_progress: OnProgress) -> None:
        self._record = BuildRecord(attempt=job.attempt, seq=0, phase="Listing")
        self._on_progress = on_progress
        self._reported_at = time.monotonic()

    def repeating(self, parts: Iterable[Part]) -> Iterator[Part]:
        """Passes parts on and reports every few seconds that the work goes on: many are requested one after another."""
        for part in parts:
            yield part
            self.at_work()

    def at_work(self) -> None:
        """Reports every few seconds that the work goes on."""
        if time.monotonic() - self._reported_at >= REPORT_EVERY_S:
            self.update()

    def counted(self, records: Iterator[Encoded]) -> Iterator[Encoded]:
        """Passes the records of a part on and reports their number, every few seconds."""
        before, begin = self._record.samples_done, time.monotonic()
        for done, record in enumerate(records, start=1):
            yield record
            now = time.monotonic()
            if now - self._reported_at >= REPORT_EVERY_S:
                rate = done / (now - begin)
                left = self._record.share_samples - before - done
                self.update(samples_done=before + done, samples_per_s=rate, eta_s=left / rate)

    def update(self, **changes: Any) -> BuildRecord:
        """Reports the record with these fields changed."""
        self._record = self._record.model_copy(update={**changes, "seq": self._record.seq + 1})
        self._reported_at = time.monotonic()
        self._on_progress(self._record)
        return self._record
