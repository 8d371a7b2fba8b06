"""What a run's pods keep in a store, read for a page: progress, checkpoints, quarantine, event files.

Pods write all of it: what is not a valid record is passed over or noted, and numbers of objects are limited.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from pydantic import ValidationError

from lead_protocol.checkpoint_retention import ranked
from lead_protocol.manifests import CheckpointManifest, read_checkpoint_manifest
from lead_protocol.object_keys import InstanceKeys, RunKeys, position_of
from lead_protocol.progress_record import MAX_RECORD_BYTES, ProgressRecord, parse_progress
from lead_protocol.store.object_store import ObjectCorrupt, ObjectNotFound, ObjectStore
from lead_ui.event_files.instance_events import EventFile

MOST_INSTANCES = 128  # of one run, as its manifest may have
MOST_ATTEMPTS = 64  # the newest, of one stage instance
MOST_CHECKPOINTS = 100  # the newest, of one stage instance
MOST_FILES = 512  # event files of one stage instance
MAX_CONFIG_BYTES = 1024 * 1024
MAX_QUARANTINE_BYTES = 64 * 1024
_INSTANCE = re.compile(r"(?P<stage>[a-z0-9-]{1,63})-s(?P<seed>[0-9]{1,20})")
_AFTER_SLASH = "0"  # the letter that follows "/": a LIST after `<folder>0` passes over what is in the folder
CONFIG_FILE = "config.json"


@dataclass(frozen=True)
class InstanceRecords:
    """The records of one stage instance."""

    keys: InstanceKeys
    attempts: Mapping[int, ProgressRecord] = field(default_factory=dict)  # last report by attempt, oldest first
    manifests: tuple[CheckpointManifest, ...] = ()  # newest first
    quarantined: Mapping[tuple[int, int], str] = field(default_factory=dict)  # (step, q) -> reason
    positions: tuple[tuple[int, int], ...] = ()  # (step, q) of `manifests`

    @property
    def newest(self) -> ProgressRecord | None:
        """The report of the newest attempt."""
        return self.attempts[max(self.attempts)] if self.attempts else None

    @property
    def best(self) -> CheckpointManifest | None:
        """The best checkpoint by the metric of its instance."""
        return next(iter(ranked(self.manifests)), None)


def instances_of(store: ObjectStore, namespace: str, uid: str) -> list[InstanceKeys]:
    """Returns the stage instances of a run that have objects; a LIST or two each; raises StoreError."""
    return list(islice(_instances(store, namespace, uid), MOST_INSTANCES))


def _instances(store: ObjectStore, namespace: str, uid: str) -> Iterator[InstanceKeys]:
    prefix, after = RunKeys(namespace, uid).prefix, ""
    while (info := next(iter(store.list(prefix, start_after=after)), None)) is not None:
        name = info.key.removeprefix(prefix).partition("/")[0]
        after = f"{prefix}{name}{_AFTER_SLASH}"
        if found := _INSTANCE.fullmatch(name):
            yield InstanceKeys(namespace, uid, found["stage"], int(found["seed"]))


def read_records(store: ObjectStore, keys: InstanceKeys, checkpoints: int = MOST_CHECKPOINTS) -> InstanceRecords:
    """Reads the records of one stage instance, with its newest `checkpoints`; raises StoreError."""
    newest = sorted((info.key for info in store.list(keys.progress_prefix)), reverse=True)[:MOST_ATTEMPTS]
    attempts = {record.attempt: record for key in reversed(newest) if (record := _progress(store, key)) is not None}
    positions = sorted(((at, info.key) for info in store.list(keys.manifests_prefix) if (at := position_of(info.key))),
                       reverse=True)[:checkpoints]  # fmt: skip
    read = [(at, manifest) for at, key in positions if (manifest := _manifest(store, key)) is not None]
    quarantined = {at: _reason(store, info.key) for info in islice(store.list(keys.quarantine_prefix), MOST_CHECKPOINTS)
                   if (at := position_of(info.key))}  # fmt: skip
    return InstanceRecords(
        keys, attempts, tuple(manifest for _, manifest in read), quarantined, tuple(at for at, _ in read)
    )


def event_files(store: ObjectStore, prefix: str) -> list[EventFile]:
    """Returns the event files below a prefix; raises StoreError."""
    listed = islice(store.list(prefix), MOST_FILES)
    return [EventFile(info.key.removeprefix(prefix), info.size) for info in listed]


def resolved_config(store: ObjectStore, records: InstanceRecords) -> dict[str, object]:
    """Returns the config of the newest checkpoint that holds one; empty before there is any; raises StoreError."""
    for manifest in records.manifests:
        stored = manifest.files.get(CONFIG_FILE)
        if stored is None or not stored.key.startswith(records.keys.prefix):
            continue
        try:
            found = json.loads(store.get(stored.key, max_bytes=MAX_CONFIG_BYTES))
        except (ObjectNotFound, ObjectCorrupt, ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    return {}


def _progress(store: ObjectStore, key: str) -> ProgressRecord | None:
    try:
        return parse_progress(store.get(key, max_bytes=MAX_RECORD_BYTES))
    except (ObjectNotFound, ObjectCorrupt):
        return None


def _manifest(store: ObjectStore, key: str) -> CheckpointManifest | None:
    try:
        return read_checkpoint_manifest(store, key)
    except (ObjectNotFound, ObjectCorrupt, ValidationError):
        return None


def _reason(store: ObjectStore, key: str) -> str:
    try:
        record = json.loads(store.get(key, max_bytes=MAX_QUARANTINE_BYTES))
    except (ObjectNotFound, ObjectCorrupt, ValueError, RecursionError):
        return "quarantined"
    reason = record.get("reason") if isinstance(record, dict) else None
    return str(reason)[:512] if reason else "quarantined"
