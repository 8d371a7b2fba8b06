"""What a pod can write is a bounded claim: it steers no run, ends none, and freezes no status."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from lead_operator.bucket.bucket_view import BucketView
from lead_operator.decisions.observed import ObservedCheckpoint, ObservedInstance, ObservedRun
from lead_operator.decisions.plan import Plan
from lead_operator.decisions.training_run.plan import decide_training_run
from lead_operator.names import Condition
from lead_operator.resources.crd_defaults import fill_defaults
from lead_protocol.job import DatasetSource
from lead_protocol.manifests import CacheManifest, CheckpointManifest, StoredObject, sha256_hex
from lead_protocol.object_keys import ControlKeys, InstanceKeys
from lead_protocol.run_records import StartedAttempt, parse_started
from lead_protocol.store.folder import FolderStore
from lead_testing.makers import (
    DIGEST,
    NOW,
    PROFILE,
    RUN_UID,
    SETTINGS,
    a_failed_pod,
    a_pod,
    a_ready_cache,
    a_run_body,
    a_training_run,
)
from lead_testing.statuses import find_condition

KEYS = InstanceKeys("team-a", RUN_UID, "train", 0)
CONTROL = ControlKeys("team-a", RUN_UID)
SHA = "5" * 64
HUGE = 10**30


def decide(previous: dict[str, Any] | None = None, **fields: Any) -> Plan:
    seen: dict[str, Any] = {"caches": (a_ready_cache(),), "service_exists": True} | fields
    plan = decide_training_run(a_training_run(), ObservedRun(now=NOW, previous=previous or {}, **seen), SETTINGS)
    fill_defaults({**a_run_body(), "status": plan.status})
    return plan


def attempt_of(plan: Plan) -> int:
    return int(plan.status["stages"][0]["attempt"])


async def read(store: FolderStore, **options: Any) -> ObservedInstance:
    return (await look_at(store, **options)).instances[0]


async def look_at(store: FolderStore, *, erased: bool = False) -> Any:
    view = BucketView(SETTINGS, lambda profile: store)
    found = await view.read_run(
        PROFILE, KEYS.namespace, KEYS.uid, (("train", 0),), live=frozenset(), max_age_s=0.0, erased=erased
    )
    view.close()
    assert not found.error
    return found


def a_manifest(*, step: int = 10, files: dict[str, StoredObject] | None = None, **fields: Any) -> CheckpointManifest:
    data = StoredObject(key=f"{KEYS.checkpoint(step, 1, 'n')}model.pth", size=4, sha256=sha256_hex(b"data"))
    values: dict[str, Any] = {
        "run_uid": KEYS.uid, "stage": KEYS.stage, "seed": 0, "attempt": 1, "nonce": "n", "step": step, "epoch": 4,
        "step_in_epoch": 0, "parent_sha256": None, "recipe": "lead", "config_sha256": SHA, "dataset_digests": [],
        "world_size": 2, "torch_version": "2", "parameters_sha256": SHA, "saved_at": "", "final": True,
        "files": {"model.pth": data} if files is None else files,
    }  # fmt: skip
    return CheckpointManifest(**{**values, **fields})


async def test_a_forged_attempt_number_raises_no_attempt_and_is_named(tmp_path: Path) -> None:
    """Audit: B3. Audit: S14."""
    store = FolderStore(tmp_path)
    for number in (1, 10**12):
        store.put(KEYS.attempt(number), b"{}")
    store.put(CONTROL.attempt("train", 0, 1), b"{}")
    found = await read(store)
    assert (found.recorded_attempt, found.highest_attempt, found.fence) == (1, 1, 10**12)
    started = decide(instances=(ObservedInstance("train", 0),))
    plan = decide(started.status, pods=(a_pod(0), a_pod(1)), instances=(found,))
    assert attempt_of(plan) == 1
    told = find_condition(plan.status, Condition.PROGRESSING) or {}
    assert told["reason"] == "UnknownAttempt" and str(10**12) in told["message"] and "remove it" in told["message"]


@pytest.mark.parametrize(("recorded", "fences", "highest"), [(0, (1,), 1), (0, (2, 9), 0), (4, (5,), 5), (4, (6,), 4)])
async def test_a_fencing_object_counts_for_one_more_than_the_operators_records(
    tmp_path: Path, recorded: int, fences: tuple[int, ...], highest: int
) -> None:
    """Audit: B3."""
    store = FolderStore(tmp_path)
    for number in fences:
        store.put(KEYS.attempt(number), b"{}")
    for number in range(1, recorded + 1):
        store.put(CONTROL.attempt("train", 0, number), b"{}")
    assert (await read(store)).highest_attempt == highest


def test_an_attempt_is_recorded_once_status_tells_of_it_and_outlives_the_status() -> None:
    claimed = decide(instances=(ObservedInstance("train", 0),))
    assert claimed.claim_attempt and not claimed.records  # a write that fails now must use up no number
    seen = ObservedInstance("train", 0)
    running = decide(claimed.status, pods=(a_pod(0), a_pod(1)), instances=(seen,))
    (record,) = running.records
    told = parse_started(record.data)
    assert record.key == CONTROL.attempt("train", 0, 1) and told is not None
    assert (told.attempt, told.config_hash) == (1, claimed.status["configHash"])
    assert [source.digest for source in told.datasets] == [DIGEST]
    recorded = replace(seen, recorded_attempt=1, highest_attempt=1)
    assert not decide(running.status, pods=(a_pod(0), a_pod(1)), instances=(recorded,)).records
    assert attempt_of(decide(instances=(recorded,))) == 2


STARTED = StartedAttempt(attempt=1, config_hash="c" * 64, datasets=[DatasetSource(name="towns", digest="e" * 64)])


def test_a_run_with_an_erased_status_keeps_its_caches_though_they_are_deleted() -> None:
    """Audit: chaos-S4."""
    here = decide(instances=(ObservedInstance("train", 0),)).status["configHash"]
    begun = STARTED.model_copy(update={"config_hash": here})
    bucket = ObservedInstance("train", 0, highest_attempt=1, recorded_attempt=1, started=begun)
    for caches in ((), (a_ready_cache(),)):
        plan = decide(instances=(bucket,), caches=caches)
        assert attempt_of(plan) == 2 and plan.creates
        assert plan.status["datasets"] == [{"name": "towns", "digest": "e" * 64}]


def test_a_forged_hash_of_the_configuration_blocks_no_run() -> None:
    """Audit: chaos-M1."""
    claimed = decide(instances=(ObservedInstance("train", 0),)).status
    begun = STARTED.model_copy(update={"config_hash": claimed["configHash"]})
    bucket = ObservedInstance("train", 0, highest_attempt=1, recorded_attempt=1, started=begun)
    ended = tuple(a_failed_pod(rank) for rank in range(2))
    plan = decide({**claimed, "configHash": "f" * 64}, pods=ended, instances=(bucket,))
    assert plan.status["reason"] != "ConfigChanged" and plan.status["configHash"] == claimed["configHash"]


async def test_an_end_that_a_pod_has_written_ends_nothing(tmp_path: Path) -> None:
    """Audit: B3."""
    store = FolderStore(tmp_path)
    end = json.dumps({"phase": "Failed", "reason": "Forged", "message": "x", "ended_at": "2026-01-01T00:00:00Z"})
    for key in ("restarts/ended.json", "ended.json", "control/ended.json", "restarts-000009.json"):
        store.put(f"runs/team-a/{RUN_UID}/{key}", end.encode())
    found = await look_at(store, erased=True)
    assert found.ended is None and found.restart_record is None
    store.put(CONTROL.ended, end.encode())
    assert (await look_at(store)).ended is not None


@pytest.mark.parametrize(
    "change",
    [
        {"step": HUGE}, {"epoch": HUGE}, {"attempt": HUGE}, {"step_in_epoch": HUGE}, {"world_size": HUGE},
        {"seed": HUGE}, {"micro_batches": HUGE},
        {"files": {"model.pth": {"key": "k", "size": HUGE, "sha256": SHA}}},
        {"files": {str(n): {"key": "k", "size": 1, "sha256": SHA} for n in range(2000)}},
    ],
    ids=str,
)  # fmt: skip
async def test_a_manifest_with_a_huge_number_is_none_and_the_one_before_counts(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    """Audit: minor-integers."""
    store = FolderStore(tmp_path)
    store.put(KEYS.manifest(10, 0), a_manifest(final=False).model_dump_json().encode())
    forged = json.loads(a_manifest(step=20).model_dump_json()) | change
    store.put(KEYS.manifest(20, 0), json.dumps(forged).encode())
    found = await read(store)
    assert found.checkpoint is not None and found.checkpoint.step == 10
    started = decide(instances=(ObservedInstance("train", 0),))
    decide(started.status, pods=(a_pod(0), a_pod(1)), instances=(found,))


@pytest.mark.parametrize("field", ["samples", "size_bytes"])
def test_a_cache_manifest_with_a_huge_number_is_none(field: str) -> None:
    """Audit: minor-integers."""
    item = {"key": "k", "size": 1, "sha256": SHA}
    values: dict[str, Any] = {
        "digest": SHA, "recipe": "lead", "builder": "v", "config": {}, "source_sha256": SHA, "routes_object": item,
        "routes": {"total": 1, "kept": 1}, "collections": {}, "shards": [], "metas": [], "samples": 1, "size_bytes": 1,
    }  # fmt: skip
    CacheManifest.model_validate_json(json.dumps(values))
    for change in (
        {field: HUGE},
        {"routes": {"total": HUGE, "kept": 1}},
        {"shards": [{"object": item, "records": HUGE}]},
    ):
        with pytest.raises(ValidationError):
            CacheManifest.model_validate_json(json.dumps(values | change))


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({}, "it names no files"),
        ({"model.pth": ("gone.pth", 4)}, "its file model.pth is not in the store"),
        ({"model.pth": ("model.pth", 5)}, "its file model.pth has 4 bytes, expected 5"),
        ({"model.pth": ("../../../../../caches/x", 4)}, "outside runs/team-a/"),
    ],
)  # fmt: skip
async def test_a_final_manifest_without_its_files_ends_no_stage_and_says_so(
    tmp_path: Path, files: dict[str, tuple[str, int]], told: str
) -> None:
    """Audit: minor-empty-final."""
    store = FolderStore(tmp_path)
    prefix = KEYS.checkpoint(10, 1, "n")
    store.put(f"{prefix}model.pth", b"data")
    entries = {
        name: StoredObject(key="caches/x" if ".." in file else f"{prefix}{file}", size=size, sha256=SHA)
        for name, (file, size) in files.items()
    }
    store.put(KEYS.manifest(10, 0), a_manifest(files=entries).model_dump_json().encode())
    found = await read(store)
    assert found.checkpoint is not None and told in found.checkpoint.fault
    started = decide(instances=(ObservedInstance("train", 0),))
    ended = (a_pod(0, phase="Succeeded", exit_code=0), a_pod(1, phase="Succeeded", exit_code=0))
    plan = decide(started.status, pods=ended, instances=(found,))
    assert plan.status["phase"] != "Succeeded" and plan.status["stages"][0]["phase"] == "Running"
    sound = find_condition(plan.status, Condition.CHECKPOINTS_VALID) or {}
    assert sound["reason"] == "ImplausibleCheckpoint" and told in sound["message"]


async def test_a_final_manifest_whose_files_are_there_ends_its_stage(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put(f"{KEYS.checkpoint(10, 1, 'n')}model.pth", b"data")
    store.put(KEYS.manifest(10, 0), a_manifest().model_dump_json().encode())
    found = await read(store)
    assert found.checkpoint is not None and found.checkpoint.fault == ""
    started = decide(instances=(ObservedInstance("train", 0),))
    ended = (a_pod(0, phase="Succeeded", exit_code=0), a_pod(1, phase="Succeeded", exit_code=0))
    plan = decide(started.status, pods=ended, instances=(found,))
    assert plan.status["phase"] == "Succeeded"
    assert CONTROL.done("train", 0) in [record.key for record in plan.records]


def test_a_stage_that_a_forged_status_calls_done_goes_on() -> None:
    """Audit: chaos-M1."""
    started = decide(instances=(ObservedInstance("train", 0),))
    forged = json.loads(json.dumps(started.status))
    forged["stages"][0]["phase"] = "Succeeded"
    unfinished = ObservedCheckpoint("m", f"{KEYS.prefix}checkpoints/", 10, 1, 1, 4, "")
    bucket = ObservedInstance("train", 0, checkpoint=unfinished, highest_attempt=1, recorded_attempt=1)
    plan = decide(forged, pods=(a_pod(0), a_pod(1)), instances=(bucket,))
    assert plan.status["phase"] == plan.status["stages"][0]["phase"] == "Starting"
    done = decide(forged, pods=(), instances=(replace(bucket, done=True),))
    assert done.status["phase"] == "Succeeded"
    away = decide(forged, instances=(), store_error="StoreUnavailable: no answer")
    assert away.status["stages"][0]["phase"] == "Succeeded"
