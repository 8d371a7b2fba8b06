"""`lead fsck`: what lies in a store, checked object by object."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from lead_protocol.exit_codes import ExitCode
from lead_protocol.manifests import MAX_CHECKPOINT_MANIFEST_BYTES
from lead_protocol.object_keys import CacheKeys, position_of
from lead_protocol.store.object_store import ObjectStore
from lead_trainer.data.fsck import fsck_cache
from lead_trainer.engine.checkpoints.instances import instances
from lead_trainer.engine.checkpoints.manifest_listing import manifest_keys
from lead_trainer.engine.checkpoints.quarantine import find_fault, quarantined_positions
from lead_trainer.errors import BadConfig
from lead_trainer.local.store import NAMESPACE, UID, logdirs_of, store_in
from lead_trainer.storage import named_store


def check_prefix(prefix: str, store: str | None, environ: Mapping[str, str]) -> int:
    """Checks a cache, a run or a logdir and prints one line a finding; returns 65 when anything is wrong."""
    if logdirs := logdirs_of(Path(prefix)):
        if store:
            raise BadConfig(f"fsck: {prefix} is a logdir, which has a store of its own; leave --store out")
        results = [_checked_checkpoints(store_in(logdir), NAMESPACE, UID) for logdir in logdirs]
        return _print_checkpoints(prefix, chain(*results))
    parts = prefix.strip("/").split("/")
    if parts[0] not in ("caches", "runs") or len(parts) != 3:
        raise BadConfig(
            f"fsck: found {prefix!r}, expected caches/<namespace>/<digest>, runs/<namespace>/<uid>, or a logdir of "
            "lead train"
        )
    opened = named_store(store, environ)
    if parts[0] == "caches":
        findings = [f"{finding.key}: {finding.fault}" for finding in fsck_cache(opened, CacheKeys(parts[1], parts[2]))]
        return _print_findings(f"{prefix}: 1 cache", findings)
    return _print_checkpoints(prefix, _checked_checkpoints(opened, parts[1], parts[2]))


def _print_checkpoints(prefix: str, results: Iterable[str]) -> int:
    faults = list(results)
    return _print_findings(f"{prefix}: {len(faults)} checkpoints", [fault for fault in faults if fault])


def _print_findings(checked: str, findings: Sequence[str]) -> int:
    """Prints what is wrong, and what was checked; returns the exit code."""
    for finding in findings:
        print(finding)
    print(f"{checked} checked, {len(findings)} findings")
    return ExitCode.BAD_DATA if findings else ExitCode.DONE


def _checked_checkpoints(store: ObjectStore, namespace: str, uid: str) -> Iterator[str]:
    """Yields "" for each valid checkpoint of a run, and the fault of each other one."""
    for keys in instances(store, namespace, uid):
        bad = quarantined_positions(store, keys.quarantine_prefix)
        for key in manifest_keys(store, keys.manifests_prefix):
            if position_of(key) in bad:
                yield f"{key}: quarantined, see {keys.quarantine_prefix}"
                continue
            with tempfile.TemporaryDirectory(prefix="lead-fsck-") as folder:
                fault, _, _ = find_fault(store, keys, key, Path(folder), MAX_CHECKPOINT_MANIFEST_BYTES)
            yield f"{key}: {fault}" if fault else ""
