"""`lead-operator objects` shows what lies below a prefix, and the newest checkpoint that counts."""

import json
from pathlib import Path

import pytest

from lead_operator.__main__ import main
from lead_operator.cli.storage_listing import ListingError, describe_prefix, key_prefix
from lead_protocol.manifests import CheckpointManifest, StoredObject
from lead_protocol.object_keys import InstanceKeys
from lead_protocol.store.folder import FolderStore
from lead_testing.makers import PROFILE, RUN_UID

RUN = f"runs/team-a/{RUN_UID}/"


def commit(store: FolderStore, stage: str, step: int, saved_at: str) -> None:
    """Writes one data object and the manifest that vouches for it."""
    keys = InstanceKeys("team-a", RUN_UID, stage, 0)
    data = StoredObject(key=f"{keys.checkpoint(step, 1, 'n')}model_0001.pth", size=2048, sha256="ab" * 32)
    store.create(data.key, b"x" * data.size)
    manifest = CheckpointManifest(
        run_uid=RUN_UID, stage=stage, seed=0, attempt=1, nonce="n", step=step, epoch=1, step_in_epoch=0,
        parent_sha256=None, recipe="lead", config_sha256="c" * 64, dataset_digests=["d" * 64], world_size=2,
        torch_version="2", parameters_sha256="e" * 64, files={"model_0001.pth": data}, saved_at=saved_at,
    )  # fmt: skip
    store.create(keys.manifest(step, 0), manifest.model_dump_json().encode())


def test_a_listing_ends_with_the_newest_checkpoint_of_all_stages(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    commit(store, "pretrain", 24, "2026-01-01T10:00:00Z")
    commit(store, "posttrain", 6, "2026-01-01T11:00:00Z")
    lines = list(describe_prefix(store, RUN))
    assert lines[0].split() == ["2.0Ki", f"{RUN}posttrain-s0/checkpoints/000000000006/0001-n/model_0001.pth"]
    assert "in 4 objects below" in lines[4]
    assert lines[6] == f"newest checkpoint: {RUN}posttrain-s0/manifest/000000000006.0.json"
    assert lines[7].split()[:10] == ["stage", "posttrain", "seed", "0", "step", "6", "epoch", "1", "attempt", "1"]
    assert lines[8].split() == ["2.0Ki", "sha256", "ab" * 6, "model_0001.pth"]


def test_a_quarantined_or_unreadable_manifest_is_no_checkpoint(tmp_path: Path) -> None:
    store, keys = FolderStore(tmp_path), InstanceKeys("team-a", RUN_UID, "train", 0)
    for step in (6, 12):
        commit(store, "train", step, f"2026-01-01T10:{step:02d}:00Z")
    store.create(keys.quarantine(12, 0), b"{}")
    store.create(keys.manifest(18, 0), b"not a manifest")
    assert any(
        line.endswith("/manifest/000000000006.0.json") for line in describe_prefix(store, RUN) if "newest" in line
    )


def test_nothing_below_a_prefix_is_said(tmp_path: Path) -> None:
    with pytest.raises(ListingError, match="no object lies below 'runs/nobody/'"):
        list(describe_prefix(FolderStore(tmp_path), "runs/nobody/"))


def test_an_address_from_a_status_is_understood_and_a_foreign_one_refused() -> None:
    assert key_prefix(PROFILE, "s3://lead/runs/a/") == "runs/a/"
    assert key_prefix(PROFILE, "/runs/a/") == "runs/a/"
    assert key_prefix(PROFILE, "s3://lead") == ""
    with pytest.raises(ListingError, match="not below storage profile default"):
        key_prefix(PROFILE, "s3://leadership/runs/a/")


def test_an_unknown_profile_ends_with_the_known_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    profiles = tmp_path / "profiles.json"
    profiles.write_text(json.dumps({"default": {"endpoint": "minio:9000", "bucket": "lead"}}))
    monkeypatch.setenv("LEAD_TRAINER_IMAGE", "trainer:1")
    monkeypatch.setenv("LEAD_STORAGE_PROFILES_FILE", str(profiles))
    monkeypatch.setenv("LEAD_RUN_NAMESPACES", "team-a")
    assert main(["objects", "runs/", "--profile", "cold"]) == 2
    assert "'cold' is not defined; known are: default" in capsys.readouterr().err
    assert main(["objects", "runs/", "--profile", "defautl"]) == 2
    assert "did you mean default? known are: default" in capsys.readouterr().err
    monkeypatch.setenv("LEAD_OPERATOR_CREDENTIALS_DIR", str(tmp_path))
    assert main(["objects", "runs/"]) == 2
    assert "s3://lead at minio:9000" in capsys.readouterr().err
