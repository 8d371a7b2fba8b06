"""From a run's records in the bucket to what is known of its stage instances; called by `bucket_view` alone."""

from collections.abc import Iterable
from functools import partial
from itertools import islice

from pydantic import ValidationError

from lead_operator.bucket.record_reader import RecordReader
from lead_operator.decisions.observed import ObservedCheckpoint, ObservedInstance
from lead_protocol.manifests import (
    MAX_CHECKPOINT_MANIFEST_BYTES,
    CheckpointManifest,
    checkpoint_fault,
    parse_checkpoint_manifest,
)
from lead_protocol.object_keys import ClosedLoopKeys, ControlKeys, InstanceKeys, position_of
from lead_protocol.progress_record import ProgressRecord, parse_progress
from lead_protocol.run_records import (
    MAX_RUN_RECORD_BYTES,
    RestartRecord,
    RunEnd,
    parse_restart_record,
    parse_run_end,
    parse_started,
)
from lead_protocol.store.object_store import ObjectStore

MAX_PROGRESS_BYTES = 64 * 1024
MAX_FOLDERS = 8  # that the files of one checkpoint lie in
MAX_LISTED = 5_000  # objects of one of them
MAX_PROGRESS_RECORDS = 100  # of one instance, the newest: one an attempt
MAX_MANIFESTS = 1_000  # of one run, the newest of each instance: what pods write beyond is left to people
FEWEST_MANIFESTS = 50  # of one instance, however many there are: retention chooses among them


def read_instances(
    reader: RecordReader, control: RecordReader, namespace: str, uid: str, instances: tuple[tuple[str, int], ...]
) -> tuple[ObservedInstance, ...]:
    """Returns what pods (`reader`) and the operator (`control`) have written of each (stage, seed), in that order."""
    keys = (InstanceKeys(namespace, uid, stage, seed) for stage, seed in instances)
    most = max(FEWEST_MANIFESTS, MAX_MANIFESTS // max(1, len(instances)))
    return tuple(_read_instance(reader, control, each, most) for each in keys)


def record_prefixes(
    namespace: str, uid: str, instances: tuple[tuple[str, int], ...], *, drives: bool = False
) -> list[str]:
    """Returns every prefix below which records of these instances lie; beside them lie checkpoints and event files."""
    found = [
        prefix
        for keys in (InstanceKeys(namespace, uid, stage, seed) for stage, seed in instances)
        for prefix in (keys.attempts_prefix, keys.manifests_prefix, keys.quarantine_prefix, keys.progress_prefix)
    ]
    driven = [ClosedLoopKeys(namespace, uid, *instance).manifests_prefix for instance in instances if drives]
    return [*found, *driven]


def read_end(reader: RecordReader, keys: ControlKeys) -> RunEnd | None:
    """Returns the verdict on a run, where there is one."""
    return reader.parsed(keys.ended, parse_run_end, MAX_RUN_RECORD_BYTES)


def read_restart_record(reader: RecordReader, keys: ControlKeys) -> RestartRecord | None:
    """Returns the newest valid restart record of a run, where there is one."""
    found = (
        reader.parsed(key, parse_restart_record, MAX_RUN_RECORD_BYTES)
        for key in sorted(reader.keys_below(keys.restarts_prefix), reverse=True)
    )
    return next((record for record in found if record is not None), None)


def _read_instance(reader: RecordReader, control: RecordReader, keys: InstanceKeys, most: int) -> ObservedInstance:
    quarantined = {_file(key) for key in reader.keys_below(keys.quarantine_prefix)}
    fences = [_number(_file(key)) for key in reader.keys_below(keys.attempts_prefix)]
    own = ControlKeys(keys.namespace, keys.uid)
    started = control.keys_below(own.attempts_prefix(keys.stage, keys.seed))
    newest = max(started, key=lambda key: _number(_file(key)), default="")
    recorded = _number(_file(newest)) if newest else 0
    done = own.done(keys.stage, keys.seed)
    manifests = _valid_manifests(reader, keys, quarantined, most)
    return ObservedInstance(
        stage=keys.stage,
        seed=keys.seed,
        progress=_newest_progress(reader, keys),
        checkpoint=_newest_checkpoint(reader, keys, manifests),
        highest_attempt=max([recorded, *(number for number in fences if number <= recorded + 1)]),
        recorded_attempt=recorded,
        started=control.parsed(newest, parse_started, MAX_RUN_RECORD_BYTES) if newest else None,
        fence=max(fences, default=0),
        done=done in control.keys_below(done),
        quarantined=_newest((f"{keys.manifests_prefix}{file}" for file in quarantined), most),
        manifests=manifests if not reader.excess else (),
    )


def _valid_manifests(reader: RecordReader, keys: InstanceKeys, quarantined: set[str], most: int) -> tuple[str, ...]:
    return _newest((key for key in reader.keys_below(keys.manifests_prefix) if _file(key) not in quarantined), most)


def _newest(manifests: Iterable[str], most: int) -> tuple[str, ...]:
    """Returns the newest of what is named like a manifest, oldest first: so many keys are kept, and read."""
    named = sorted((position, key) for key in manifests if (position := position_of(key)) is not None)
    return tuple(key for _, key in named[-most:])


def _newest_progress(reader: RecordReader, keys: InstanceKeys) -> ProgressRecord | None:
    named = {key: _number(_file(key)) for key in reader.keys_below(keys.progress_prefix)}
    attempts = sorted(attempt for key, attempt in named.items() if key == keys.progress(attempt))
    for attempt in reversed(attempts[-MAX_PROGRESS_RECORDS:]):
        record = reader.parsed(keys.progress(attempt), partial(_parse_progress, attempt), MAX_PROGRESS_BYTES)
        if record is not None:
            return record
    return None


def _parse_progress(attempt: int, data: bytes) -> ProgressRecord | None:
    record = parse_progress(data)
    return record if record is not None and record.attempt == attempt else None


def _newest_checkpoint(
    reader: RecordReader, keys: InstanceKeys, manifests: tuple[str, ...]
) -> ObservedCheckpoint | None:
    for key in reversed(manifests):
        found = reader.parsed(key, partial(_read_checkpoint, reader.store, keys, key), MAX_CHECKPOINT_MANIFEST_BYTES)
        if found is not None:
            if found.fault:  # its objects may come yet
                reader.forget(key)
            return found
    return None


def _read_checkpoint(store: ObjectStore, keys: InstanceKeys, key: str, data: bytes) -> ObservedCheckpoint | None:
    """Returns what is kept of a manifest, little for any content; None where it is none of this instance."""
    try:
        manifest = parse_checkpoint_manifest(data)
    except ValidationError:
        return None
    position, owner = position_of(key), (manifest.run_uid, manifest.stage, manifest.seed)
    if position is None or manifest.step != position[0] or owner != (keys.uid, keys.stage, keys.seed):
        return None
    return _checkpoint(key, manifest, keys, _fault(manifest, keys, store))


def _fault(manifest: CheckpointManifest, keys: InstanceKeys, store: ObjectStore) -> str:
    """Returns why a manifest is not believed to be a whole checkpoint; asks the store for the sizes of its objects."""
    if fault := checkpoint_fault(manifest, keys.prefix):
        return fault
    folders = sorted({file.key.rpartition("/")[0] for file in manifest.files.values()})
    if len(folders) > MAX_FOLDERS:
        return f"its files lie in {len(folders)} folders, expected at most {MAX_FOLDERS}"
    listed = (info for folder in folders for info in islice(store.list(f"{folder}/"), MAX_LISTED))
    sizes = {info.key: info.size for info in listed}
    for name, file in sorted(manifest.files.items()):
        if file.key not in sizes:
            return f"its file {name} is not in the store"
        if sizes[file.key] != file.size:
            return f"its file {name} has {sizes[file.key]} bytes, expected {file.size}"
    return ""


def _checkpoint(key: str, manifest: CheckpointManifest, keys: InstanceKeys, fault: str) -> ObservedCheckpoint:
    return ObservedCheckpoint(
        manifest_key=key,
        prefix=keys.checkpoint(manifest.step, manifest.attempt, manifest.nonce),
        step=manifest.step,
        epoch=manifest.epoch,
        attempt=manifest.attempt,
        size_bytes=sum(file.size for file in manifest.files.values()),
        saved_at=manifest.saved_at,
        final=manifest.final,
        fault=fault,
    )


def _file(key: str) -> str:
    return key.rsplit("/", 1)[1]


def _number(file: str) -> int:
    digits = file.split(".", 1)[0]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 18 else 0
