"""The chart's storage-init against a real MinIO: what it makes, and what its users may and may not do."""

import json
import secrets
from dataclasses import replace
from pathlib import Path

import pytest

from lead_operator.errors import SettingsError
from lead_operator.settings import StorageProfile
from lead_operator.storage_init import Account, ProfileAccounts, StorageInitError, init_storage, main, read_request
from lead_protocol.store.object_store import StoreDenied
from lead_protocol.store.s3 import S3Store
from lead_testing.minio_server import ROOT_PASSWORD, ROOT_USER, MinioServer
from lead_testing.ports import dead_port

ROOT = Account(ROOT_USER, ROOT_PASSWORD)


@pytest.fixture
def wanted(minio: MinioServer) -> ProfileAccounts:
    some = secrets.token_hex(4)
    profile = StorageProfile(f"p{some}", minio.endpoint, f"bucket-{some}", prefix="team/a", secure=False)
    return ProfileAccounts(
        profile, Account(f"lead-trainer-{some}", "trainer-secret"), Account(f"lead-operator-{some}", "operator-secret")
    )


def store_of(minio: MinioServer, wanted: ProfileAccounts, account: Account, prefix: str = "team/a") -> S3Store:
    target = minio.target(wanted.profile.bucket, prefix)
    return S3Store(replace(target, access_key=account.access_key, secret_key=account.secret_key))


def test_pods_may_read_write_and_list_but_never_delete(
    minio: MinioServer, wanted: ProfileAccounts, tmp_path: Path
) -> None:
    init_storage([wanted], ROOT)
    store = store_of(minio, wanted, wanted.trainer)
    (tmp_path / "f").write_bytes(b"x" * 100)
    assert store.create("k", b"1") is True
    assert store.create("k", b"2") is False
    assert [found.key for found in store.list("")] == ["k"]
    assert store.head("nothing") is None
    with pytest.raises(StoreDenied, match="AccessDenied"):
        store.delete("k")


def test_nobody_leaves_the_prefix_of_the_profile(minio: MinioServer, wanted: ProfileAccounts) -> None:
    init_storage([wanted], ROOT)
    store_of(minio, wanted, ROOT, prefix="team/b").put("k", b"theirs")
    for account in (wanted.trainer, wanted.operator):
        elsewhere = store_of(minio, wanted, account, prefix="team/b")
        with pytest.raises(StoreDenied):
            elsewhere.get("k", max_bytes=10)
        with pytest.raises(StoreDenied):
            elsewhere.put("k", b"ours")
        with pytest.raises(StoreDenied):
            list(elsewhere.list(""))


def test_the_operator_may_delete_what_runs_have_written_and_nothing_else(
    minio: MinioServer, wanted: ProfileAccounts
) -> None:
    init_storage([wanted], ROOT)
    trainer, operator = store_of(minio, wanted, wanted.trainer), store_of(minio, wanted, wanted.operator)
    kept = ("k", "datasets/town/a")
    written = ("runs/team-a/u/train-s0/k", "caches/d/MANIFEST.json", "builds/team-a/u/1.json")
    for key in (*kept, *written):
        trainer.put(key, b"1")
    assert operator.get("k", max_bytes=10) == b"1"
    for key in written:
        operator.delete(key)
        assert operator.head(key) is None
    for key in kept:
        with pytest.raises(StoreDenied, match="AccessDenied"):
            operator.delete(key)


def test_it_may_be_repeated_and_sets_a_rotated_key(minio: MinioServer, wanted: ProfileAccounts) -> None:
    init_storage([wanted], ROOT)
    store_of(minio, wanted, wanted.trainer).put("k", b"kept")
    rotated = replace(wanted, trainer=replace(wanted.trainer, secret_key="another-secret"))
    init_storage([rotated], ROOT)
    assert store_of(minio, rotated, rotated.trainer).get("k", max_bytes=10) == b"kept"
    with pytest.raises(StoreDenied):
        store_of(minio, wanted, wanted.trainer).get("k", max_bytes=10)


def test_a_profile_without_a_prefix_has_the_whole_bucket(minio: MinioServer, wanted: ProfileAccounts) -> None:
    whole = replace(wanted, profile=replace(wanted.profile, prefix=""))
    init_storage([whole], ROOT)
    store = store_of(minio, whole, whole.trainer, prefix="")
    store.put("a/b", b"1")
    assert [found.key for found in store.list("a/")] == ["a/b"]


def test_a_store_that_never_answers_is_named(wanted: ProfileAccounts) -> None:
    with dead_port() as port:
        silent = replace(wanted, profile=replace(wanted.profile, endpoint=f"127.0.0.1:{port}"))
        with pytest.raises(StorageInitError, match=r"127\.0\.0\.1.*could not be prepared"):
            init_storage([silent], ROOT, deadline_s=1.5)


def test_wrong_root_credentials_end_at_once(wanted: ProfileAccounts) -> None:
    with pytest.raises(StorageInitError, match="root credentials"):
        init_storage([wanted], Account(ROOT_USER, "not-the-password"), deadline_s=10**6)


def mounted(folder: Path, wanted: ProfileAccounts) -> dict[str, str]:
    profile, name = wanted.profile, wanted.profile.name
    document = {"endpoint": profile.endpoint, "secure": False, "bucket": profile.bucket, "prefix": profile.prefix}
    (folder / "profiles.json").write_text(json.dumps({name: document}))
    files = {
        "root-user": ROOT_USER,
        "root-password": ROOT_PASSWORD,
        f"{name}.trainer-access-key": wanted.trainer.access_key,
        f"{name}.trainer-secret-key": wanted.trainer.secret_key,
        f"{name}.operator-access-key": wanted.operator.access_key,
        f"{name}.operator-secret-key": wanted.operator.secret_key,
    }
    for file, text in files.items():
        (folder / file).write_text(text)
    return {
        "LEAD_STORAGE_PROFILES_FILE": str(folder / "profiles.json"),
        "LEAD_STORAGE_INIT_CREDENTIALS_DIR": str(folder),
        "LEAD_STORAGE_INIT_PROFILES": name,
    }


def test_the_command_reads_what_the_chart_mounts(
    minio: MinioServer,
    wanted: ProfileAccounts,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for variable, value in mounted(tmp_path, wanted).items():
        monkeypatch.setenv(variable, value)
    assert main() == 0
    printed = capsys.readouterr().out
    assert f"{wanted.profile.url} at {minio.endpoint} is ready" in printed
    assert "secret" not in printed


def test_what_is_missing_is_named(wanted: ProfileAccounts, tmp_path: Path) -> None:
    environment = mounted(tmp_path, wanted)
    (tmp_path / "root-password").unlink()
    with pytest.raises(SettingsError, match="root-password"):
        read_request(environment)
    with pytest.raises(SettingsError, match="LEAD_STORAGE_INIT_PROFILES names 'other'"):
        read_request({**environment, "LEAD_STORAGE_INIT_PROFILES": "other"})
    with pytest.raises(SettingsError, match="LEAD_STORAGE_PROFILES_FILE"):
        read_request({})
