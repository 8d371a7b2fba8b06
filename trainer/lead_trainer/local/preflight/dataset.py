"""Whether a run's data can be read: the cache is found, else the raw tree is scanned and one record made."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import ObjectStore
from lead_trainer.building import source_tree
from lead_trainer.contract.raw_data import Scan, SourceTree
from lead_trainer.data.record import encode_record
from lead_trainer.data.wanted_cache import WantedCache, source_of, wanted_cache
from lead_trainer.errors import BadData
from lead_trainer.local.job import cache_job, cache_store, dataset_runs, session_cache_folder
from lead_trainer.local.preflight.disks import Need
from lead_trainer.local.preflight.finding import Finding
from lead_trainer.local.run import LocalRun

DATA = "data"


@dataclass(frozen=True)
class DatasetCheck:
    """What was found of one raw tree, and what its cache takes of the disks here."""

    finding: Finding
    needs: Sequence[Need] = ()


def check_datasets(run: LocalRun, environ: Mapping[str, str]) -> Iterator[DatasetCheck]:
    """Checks each raw tree of a run; raises BadConfig, BadData and StoreError as a build does."""
    store = cache_store(run, environ)
    if store is None:
        yield DatasetCheck(Finding(DATA, "ok", f"recipe {run.recipe.name} reads no dataset"))
        return
    session = session_cache_folder(run, environ) if run.config.use_training_session_cache else None
    for part in dataset_runs(run).values():
        yield check_dataset(part, store, session)


def check_dataset(run: LocalRun, store: ObjectStore, session: Path | None) -> DatasetCheck:
    """Checks one raw tree; a cache that is complete is taken as it is."""
    job = cache_job(run)
    tree = source_tree(job, store, links_may_leave=True)
    wanted = wanted_cache(job, run.recipe, tree.files())
    made = wanted.made(store, takes_another=True)
    if made is not None:
        text = f"{source_of(job)}: its cache {made.digest[:12]} is complete, {made.samples} samples"
        copy = [] if session is None else [Need("session cache", session, made.size_bytes)]
        return DatasetCheck(Finding(DATA, "ok", text), copy)
    scan = run.recipe.required_preparation.scan(tree, wanted.config, job.collections)
    if not scan.samples:
        raise BadData(f"dataset {source_of(job)}: {_counts(scan)}; there is nothing to train on")
    _make_records(run, wanted, tree, scan)
    size = int(scan.estimated_bytes.sum())
    needs = [Need("session cache", session, size)] if session is not None else []
    if isinstance(store, FolderStore):
        needs.append(Need("cache", Path(store.url.removeprefix("file://")), size))
    all_kept = all(verdict.kept for verdict in scan.verdicts)
    text = f"{source_of(job)}: {_counts(scan)}; training builds the cache first"
    return DatasetCheck(Finding(DATA, "ok" if all_kept else "warning", text), needs)


def _make_records(run: LocalRun, wanted: WantedCache, tree: SourceTree, scan: Scan) -> None:
    """Makes the first record of each collection; those of a build in stages need its earlier stages."""
    preparation = run.recipe.required_preparation
    if preparation.build_stages(wanted.config):
        return
    firsts = {int(bucket.samples[0]) for each in scan.collections for bucket in each.buckets if len(bucket.samples)}
    for number in sorted(firsts):
        encode_record(0, preparation.record(tree, wanted.config, scan.samples[number]))


def _counts(scan: Scan) -> str:
    kept = sum(verdict.kept for verdict in scan.verdicts)
    reasons = Counter(verdict.reason for verdict in scan.verdicts if not verdict.kept)
    left = "".join(f", {count} {reason}" for reason, count in sorted(reasons.items()))
    samples = ", ".join(f"{each.name} {sum(len(b.samples) for b in each.buckets)}" for each in scan.collections)
    return f"{kept} of {len(scan.verdicts)} routes usable{left}; samples: {samples}"
