"""The chart's storage-init against a real MinIO: what it makes, takes away and refuses.

What each identity may do is in test_identities_at_the_store.py.
"""

import io
import json
import secrets
from dataclasses import replace
from pathlib import Path

import pytest

from lead_operator.cli.storage_init import (
    Account,
    EmbeddedStore,
    ProfileAccounts,
    StorageInitError,
    init_storage,
    main,
    read_request,
)
from lead_operator.errors import SettingsError
from lead_operator.settings import StorageProfile
from lead_protocol.store.object_store import StoreDenied
from lead_protocol.store.s3 import S3Store
from lead_testing.minio_server import ROOT_PASSWORD, ROOT_USER, MinioServer
from lead_testing.ports import dead_port

ROOT = Account(ROOT_USER, ROOT_PASSWORD)


@pytest.fixture
def wanted(minio: MinioServer) -> EmbeddedStore:
    some = secrets.token_hex(4)
    profile = StorageProfile(f"p{some}", minio.endpoint, f"bucket-{some}", prefix="team/a", secure=False)
    people = {name: Account(f"lead-data-{profile.name}.{name}", f"secret-of-{name}") for name in ("team-a", "team-b")}
    operator = Account(f"lead-operator-{profile.name}", "operator-secret")
    viewers = {name: Account(f"lead-view-{profile.name}.{name}", f"view-of-{name}") for name in people}
    return EmbeddedStore(ROOT, (ProfileAccounts(profile, operator, people, viewers),))


def store_of(minio: MinioServer, wanted: EmbeddedStore, account: Account, prefix: str = "team/a") -> S3Store:
    target = minio.target(wanted.profiles[0].profile.bucket, prefix)
    return S3Store(replace(target, access_key=account.access_key, secret_key=account.secret_key))


def with_people(wanted: EmbeddedStore, **people: Account) -> EmbeddedStore:
    named = {name.replace("_", "-"): account for name, account in people.items()}
    viewers = {name: key for name, key in wanted.profiles[0].viewers.items() if name in named}
    return replace(wanted, profiles=(replace(wanted.profiles[0], people=named, viewers=viewers),))


def test_it_may_be_repeated_and_sets_a_rotated_key(minio: MinioServer, wanted: EmbeddedStore) -> None:
    init_storage(wanted)
    people = wanted.profiles[0].people
    key = "datasets/team-a/k"
    store_of(minio, wanted, people["team-a"]).put(key, b"kept")
    rotated = with_people(
        wanted, team_a=replace(people["team-a"], secret_key="another-secret"), team_b=people["team-b"]
    )
    init_storage(rotated)
    assert store_of(minio, rotated, rotated.profiles[0].people["team-a"]).get(key, max_bytes=10) == b"kept"
    with pytest.raises(StoreDenied):
        store_of(minio, wanted, people["team-a"]).get(key, max_bytes=10)


def test_a_namespace_that_is_no_longer_listed_loses_key_policy_and_role(
    minio: MinioServer, wanted: EmbeddedStore
) -> None:
    """A tenant that leaves keeps no way in; what others made under names of their own stays. Audit: B3."""
    minio.users().user_add("somebody-elses", "somebody-elses-secret")
    init_storage(wanted)
    people = wanted.profiles[0].people
    store_of(minio, wanted, people["team-b"]).put("datasets/team-b/k", b"1")
    init_storage(with_people(wanted, team_a=people["team-a"]))
    with pytest.raises(StoreDenied):
        store_of(minio, wanted, people["team-b"]).get("datasets/team-b/k", max_bytes=10)
    users, policies = json.loads(minio.users().user_list()), json.loads(minio.users().policy_list())
    name = wanted.profiles[0].profile.name
    assert f"lead-data-{name}.team-a" in users and f"lead-data-{name}.team-b" not in users
    assert f"lead-view-{name}.team-a" in users and f"lead-view-{name}.team-b" not in users
    assert f"lead-data-{name}.team-a" in policies and f"lead-data-{name}.team-b" not in policies
    assert not any("team-b" in json.dumps(policies[role]) for role in policies if role.startswith("lead-pods-"))
    assert "somebody-elses" in users


def test_what_was_overwritten_can_be_restored(minio: MinioServer, wanted: EmbeddedStore) -> None:
    """A manifest that a pod's key overwrites is not lost: versioning on manifests. Audit: S13."""
    init_storage(wanted)
    init_storage(wanted)
    root, bucket = minio.admin(), wanted.profiles[0].profile.bucket
    for key in ("team/a/runs/team-a/u/train-s0/manifest/1.json", "team/a/runs/team-a/u/train-s0/progress/0001.json"):
        for body in (b"first", b"forged"):
            root.put_object(bucket, key, io.BytesIO(body), len(body))
    versions = [
        (found.object_name.rsplit("/", 2)[1], found.is_latest == "true", found.version_id)
        for found in root.list_objects(bucket, recursive=True, include_version=True)
    ]
    assert [(name, latest) for name, latest, _ in versions] == [
        ("manifest", True), ("manifest", False), ("progress", True),
    ]  # fmt: skip
    kept = root.get_object(bucket, "team/a/runs/team-a/u/train-s0/manifest/1.json", version_id=versions[1][2])
    assert kept.read() == b"first"
    (rule,) = root.get_bucket_lifecycle(bucket).rules
    assert rule.noncurrent_version_expiration.noncurrent_days == 1
    assert rule.expiration.expired_object_delete_marker


def test_more_namespaces_than_the_role_takes_are_refused_with_a_remedy(
    minio: MinioServer, wanted: EmbeddedStore
) -> None:
    many = {f"team-{number}": Account(f"lead-data-many.{number}", "secret-key") for number in range(300)}
    with pytest.raises(StorageInitError, match="do not fit into the role of the embedded store; name fewer by"):
        init_storage(replace(wanted, profiles=(replace(wanted.profiles[0], people=many),)))


def test_a_store_that_never_answers_is_named(wanted: EmbeddedStore) -> None:
    with dead_port() as port:
        entry = wanted.profiles[0]
        silent = replace(entry, profile=replace(entry.profile, endpoint=f"127.0.0.1:{port}"))
        with pytest.raises(StorageInitError, match=r"127\.0\.0\.1.*could not be prepared"):
            init_storage(replace(wanted, profiles=(silent,)), deadline_s=1.5)


def test_wrong_root_credentials_end_at_once(wanted: EmbeddedStore) -> None:
    with pytest.raises(StorageInitError, match="root credentials"):
        init_storage(replace(wanted, root=Account(ROOT_USER, "not-the-password")), deadline_s=10**6)


def mounted(folder: Path, wanted: EmbeddedStore) -> dict[str, str]:
    entry = wanted.profiles[0]
    profile, name = entry.profile, entry.profile.name
    document = {
        "endpoint": profile.endpoint, "secure": False, "bucket": profile.bucket, "prefix": profile.prefix,
        "namespaces": ["team-a"],
    }  # fmt: skip
    (folder / "profiles.json").write_text(json.dumps({name: document}))
    accounts = {f"{name}.operator": entry.operator, f"{name}.team-a.data": entry.people["team-a"],
                f"{name}.team-a.view": entry.viewers["team-a"]}  # fmt: skip
    files = {"root-user": ROOT_USER, "root-password": ROOT_PASSWORD}
    for whose, account in accounts.items():
        files |= {f"{whose}-access-key": account.access_key, f"{whose}-secret-key": account.secret_key}
    for file, text in files.items():
        (folder / file).write_text(text)
    return {
        "LEAD_STORAGE_PROFILES_FILE": str(folder / "profiles.json"),
        "LEAD_STORAGE_INIT_CREDENTIALS_DIR": str(folder),
        "LEAD_STORAGE_INIT_PROFILES": name,
        "LEAD_STORAGE_INIT_ALONE": "false",
        "LEAD_RUN_NAMESPACES": "team-a,team-b",
        "LEAD_RUN_SERVICE_ACCOUNT": "lead-run",
        "LEAD_BUILD_SERVICE_ACCOUNT": "lead-build",
    }


def test_the_command_reads_what_the_chart_mounts(
    minio: MinioServer,
    wanted: EmbeddedStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for variable, value in mounted(tmp_path, wanted).items():
        monkeypatch.setenv(variable, value)
    assert main() == 0
    printed = capsys.readouterr().out
    assert f"{wanted.profiles[0].profile.url} at {minio.endpoint} is ready for team-a" in printed
    assert "team-b" not in printed  # which the profile does not serve
    assert "secret" not in printed


def test_what_is_missing_is_named(wanted: EmbeddedStore, tmp_path: Path) -> None:
    environment = mounted(tmp_path, wanted)
    (tmp_path / "root-password").unlink()
    with pytest.raises(SettingsError, match="root-password"):
        read_request(environment)
    with pytest.raises(SettingsError, match="LEAD_STORAGE_INIT_PROFILES names 'other'"):
        read_request({**environment, "LEAD_STORAGE_INIT_PROFILES": "other"})
    with pytest.raises(SettingsError, match="LEAD_STORAGE_PROFILES_FILE"):
        read_request({})
