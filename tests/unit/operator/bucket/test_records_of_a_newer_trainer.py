"""An operator that was rolled back reads what newer trainers write: it passes over what it does not know."""

import json
from pathlib import Path

from lead_operator.bucket.instance_records import read_instances
from lead_operator.bucket.record_reader import RecordReader, Records
from lead_operator.decisions.observed import ObservedInstance
from lead_protocol.manifests import CheckpointManifest, StoredObject
from lead_protocol.object_keys import InstanceKeys
from lead_protocol.progress_record import ProgressRecord, parse_build
from lead_protocol.store.folder import FolderStore
from lead_testing.makers import DIGEST, RUN_UID
from lead_trainer.engine.checkpoints.manifest_listing import manifest_keys

KEYS = InstanceKeys("team-a", RUN_UID, "train", 0)
PROGRESS = ProgressRecord(attempt=1, seq=3, phase="Training", epoch=1, epochs=2, step=10, steps=20)


def newer(document: str) -> bytes:
    return json.dumps({**json.loads(document), "told_since_next_year": {"by": ["newer", "trainers"]}}).encode()


def a_manifest(nonce: str) -> CheckpointManifest:
    return CheckpointManifest(
        run_uid=KEYS.uid, stage=KEYS.stage, seed=KEYS.seed, attempt=1, nonce=nonce, step=10, epoch=1,
        step_in_epoch=0, parent_sha256=None, recipe="lead", config_sha256=DIGEST, dataset_digests=[], world_size=2,
        final=True, torch_version="2", parameters_sha256=DIGEST, saved_at="2026-01-01T00:00:00Z",
        files={"model.pth": StoredObject(key="runs/model.pth", size=4, sha256=DIGEST)},
    )  # fmt: skip


def instance_in(store: FolderStore) -> ObservedInstance:
    reader = RecordReader(store, Records(), KEYS.prefix, 100)
    control = RecordReader(store, Records(), f"control/{KEYS.namespace}/{KEYS.uid}/", 100)
    (found,) = read_instances(reader, control, KEYS.namespace, KEYS.uid, ((KEYS.stage, KEYS.seed),))
    return found


def test_progress_and_checkpoints_with_more_fields_are_read(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put(KEYS.progress(1), newer(PROGRESS.model_dump_json()))
    store.put(KEYS.manifest(10, 0), newer(a_manifest("abc123").model_dump_json()))
    found = instance_in(store)
    assert found.progress == PROGRESS
    assert found.checkpoint is not None and (found.checkpoint.step, found.checkpoint.final) == (10, True)


def test_what_is_known_must_still_be_sound() -> None:
    assert parse_build(newer('{"attempt": 1, "seq": 1, "phase": "Listing"}')) is not None
    assert parse_build(newer('{"attempt": 0, "seq": 1, "phase": "Listing"}')) is None


def test_of_one_step_the_checkpoint_committed_last_counts_as_in_the_trainer(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    for q in (2, 9, 10):
        store.put(KEYS.manifest(10, q), a_manifest(f"q{q}").model_dump_json().encode())
    newest = instance_in(store).checkpoint
    assert newest is not None and newest.manifest_key == manifest_keys(store, KEYS.manifests_prefix)[0]
    assert newest.manifest_key == KEYS.manifest(10, 10)
