"""The records of a DatasetCache's build, of its pods and of the operator, and the manifest of the cache it came to.

Read by `bucket_view`. What pods wrote is hostile until parsed.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime

from pydantic import ConfigDict

from lead_operator.bucket.bucket_snapshot import BucketSnapshot, ReadLimits
from lead_operator.bucket.cache_facts import read_cache_facts
from lead_operator.bucket.record_reader import RecordReader, Records
from lead_operator.decisions.observed import BuildReport, ObservedBuildFailure, ObservedCacheManifest
from lead_protocol.manifests import MAX_MANIFEST_BYTES, Sha256
from lead_protocol.object_keys import BuildKeys, CacheKeys
from lead_protocol.progress_record import parse_build
from lead_protocol.run_records import MAX_RUN_RECORD_BYTES, parse_failed_source, parse_published, parse_run_end
from lead_protocol.store.object_store import ObjectStore
from lead_protocol.strict_model import StrictModel, parse_or_none

MAX_RECORD_BYTES = 64 * 1024


class BuildResult(StrictModel):
    """The record of which digest a generation of a DatasetCache came to; further keys are for people."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)
    digest: Sha256


def read_build(
    store: ObjectStore, records: Records, keys: BuildKeys, generation: int, *, shares: int, now: datetime,
    stages: Iterable[tuple[str, int]] = (),
) -> BucketSnapshot:  # fmt: skip
    """Reads a build's records, and the manifest of the cache that the operator has published for it."""
    parts = [keys.result(generation), keys.progress_prefix]  # beside them lies what is staged: thousands of objects
    reader = RecordReader(store, records, keys.prefix, ReadLimits.objects, parts, parts_alone=True)
    control = RecordReader(store, records, keys.control.prefix, ReadLimits.objects)
    published = control.parsed(keys.control.published(generation), parse_published, MAX_RUN_RECORD_BYTES)
    result = reader.parsed(keys.result(generation), _parse_result, MAX_RECORD_BYTES)
    digest = published.digest if published else result.digest if result else ""
    found = _read_manifest(store, records, CacheKeys(keys.namespace, digest)) if published else None
    expected_sha256 = published.manifest_sha256 if published else ""
    pods = [(stage, index) for stage, count in (*stages, ("", shares)) for index in range(count)]
    reports = tuple(_read_reports(reader, ((*pod, keys.progress(generation, pod[1], pod[0])) for pod in pods), now))
    return BucketSnapshot(
        error=reader.excess or control.excess,
        result_digest=digest,
        manifest=found if found is not None and found.sha256 == expected_sha256 else None,
        published_sha256=expected_sha256,
        found_sha256=found.sha256 if found is not None else "",
        failure=_read_failure(control, keys, generation),
        reports=reports,
    )


def _read_reports(reader: RecordReader, pods: Iterable[tuple[str, int, str]], now: datetime) -> Iterator[BuildReport]:
    """Yields the newest record of each share, and since when it is; a record that does not parse is none."""
    for stage, index, key in pods:
        parsed = reader.parsed(key, lambda data: (parse_build(data), now), MAX_RECORD_BYTES)  # parsed when it is new
        if parsed is not None and parsed[0] is not None:
            yield BuildReport(index, parsed[0], parsed[1], stage)


def _read_failure(control: RecordReader, keys: BuildKeys, generation: int) -> ObservedBuildFailure | None:
    """Returns the newest failure of a generation that the operator has recorded."""
    for key in sorted(control.keys_below(keys.control.failed_prefix(generation)), reverse=True):
        end, rebuilds = control.parsed(key, parse_run_end, MAX_RUN_RECORD_BYTES), key.rpartition("-")[2].split(".")[0]
        if end is not None and rebuilds.isascii() and rebuilds.isdigit():
            listed_at = keys.control.failed_source(generation, int(rebuilds))
            listed = control.parsed(listed_at, parse_failed_source, MAX_RUN_RECORD_BYTES)
            source = listed.sha256 if listed is not None else ""
            return ObservedBuildFailure(int(rebuilds), end.reason, end.message, end.ended_at, source)
    return None


def _read_manifest(store: ObjectStore, records: Records, keys: CacheKeys) -> ObservedCacheManifest | None:
    """Returns the facts of a published manifest, read once while its etag stays; None where it is none."""
    reader = RecordReader(store, records, keys.manifest, ReadLimits.objects)
    return reader.parsed(keys.manifest, read_cache_facts, MAX_MANIFEST_BYTES)


def _parse_result(data: bytes) -> BuildResult | None:
    return parse_or_none(BuildResult, data, MAX_RECORD_BYTES)
