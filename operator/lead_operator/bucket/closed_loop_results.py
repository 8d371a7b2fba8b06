"""From the commits of closed-loop evaluations in the bucket to what is known of them; called by `bucket_view` alone."""

import re
from functools import partial

from lead_operator.bucket.record_reader import RecordReader
from lead_operator.decisions.observed import ObservedDrive
from lead_protocol.closed_loop_record import MAX_CLOSED_LOOP_BYTES, parse_closed_loop
from lead_protocol.object_keys import ClosedLoopKeys

MAX_RESULTS = 256  # of one run, the newest of each instance: what pods write beyond is left to people
FEWEST_RESULTS = 2  # of one instance
_NAME = re.compile(r"(\d{6})\.json")


def read_drives(
    reader: RecordReader, namespace: str, uid: str, instances: tuple[tuple[str, int], ...]
) -> tuple[ObservedDrive, ...]:
    """Returns the valid results of each (stage, seed), by attempt."""
    most, found = max(FEWEST_RESULTS, MAX_RESULTS // max(1, len(instances))), list[ObservedDrive]()
    for stage, seed in instances:
        keys = ClosedLoopKeys(namespace, uid, stage, seed)
        listed = sorted(key for key in reader.keys_below(keys.manifests_prefix) if _attempt_of(keys, key))
        read = (reader.parsed(key, partial(_parse, keys, key), MAX_CLOSED_LOOP_BYTES) for key in listed[-most:])
        found += [drive for drive in read if drive is not None]
    return tuple(sorted(found, key=lambda drive: drive.attempt))


def _attempt_of(keys: ClosedLoopKeys, key: str) -> int:
    name = _NAME.fullmatch(key.removeprefix(keys.manifests_prefix))
    return int(name[1]) if name else 0


def _parse(keys: ClosedLoopKeys, key: str, data: bytes) -> ObservedDrive | None:
    """Returns what is kept of a manifest; None of one that is not what its key names."""
    manifest = parse_closed_loop(data)
    if manifest is None or manifest.attempt != _attempt_of(keys, key):
        return None
    if (manifest.run_uid, manifest.stage, manifest.seed) != (keys.uid, keys.stage, keys.seed):
        return None
    return ObservedDrive(
        manifest_key=key,
        stage=manifest.stage,
        seed=manifest.seed,
        attempt=manifest.attempt,
        pod_uid=manifest.pod_uid,
        epoch=manifest.epoch,
        requested="".join(filter(str.isprintable, manifest.request)),
        results_prefix=keys.results(manifest.epoch, manifest.attempt),
        numbers=manifest.numbers,
        saved_at=manifest.saved_at,
    )
