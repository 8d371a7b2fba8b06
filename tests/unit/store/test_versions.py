"""A bucket that keeps versions: what was overwritten comes back, what the operator deletes frees its space."""

import hashlib
import io
import secrets
from dataclasses import replace
from pathlib import Path

import pytest
from minio.commonconfig import ENABLED, CopySource
from minio.versioningconfig import VersioningConfig

from lead_operator.cli.storage_init import Account, EmbeddedStore, ProfileAccounts, init_storage
from lead_operator.settings import StorageProfile
from lead_protocol.store.s3 import S3Store
from lead_testing.minio_server import ROOT_PASSWORD, ROOT_USER, MinioServer
from lead_testing.toy_jobs import KEYS

MANIFEST = KEYS.manifest(6, 0)


@pytest.fixture
def profile(minio: MinioServer) -> StorageProfile:
    some = secrets.token_hex(4)
    profile = StorageProfile(f"p{some}", minio.endpoint, f"bucket-{some}", prefix="team", secure=False)
    people = {KEYS.namespace: Account(f"lead-data-{some}", "data-secret")}
    entry = ProfileAccounts(profile, Account("lead-operator-versions", "operator-secret"), people)
    init_storage(EmbeddedStore(Account(ROOT_USER, ROOT_PASSWORD), (entry,)))
    return profile


@pytest.fixture
def operator(minio: MinioServer, profile: StorageProfile) -> S3Store:
    target = minio.target(profile.bucket, profile.prefix)
    return S3Store(replace(target, access_key="lead-operator-versions", secret_key="operator-secret"))


def versions(minio: MinioServer, bucket: str) -> list[tuple[str, str, bool]]:
    """Returns key, version and whether it is a deletion's mark, of everything in a bucket."""
    return [
        (str(found.object_name), str(found.version_id), bool(found.is_delete_marker))
        for found in minio.admin().list_objects(bucket, recursive=True, include_version=True)
    ]


def test_an_overwritten_manifest_is_restored(minio: MinioServer, profile: StorageProfile, operator: S3Store) -> None:
    """Who overwrites a committed manifest destroys nothing: its versions are there for a day. Audit: S13."""
    assert operator.create(MANIFEST, b"committed")
    operator.put(MANIFEST, b"forged")
    newest, committed = versions(minio, profile.bucket)
    assert newest[0] == committed[0] == f"team/{MANIFEST}"
    # By the operator's key, as operating.md has it.
    minio.admin().copy_object(
        profile.bucket, committed[0], CopySource(profile.bucket, committed[0], version_id=committed[1])
    )
    assert operator.get(MANIFEST, max_bytes=100) == b"committed"


def test_what_is_deleted_leaves_nothing_behind(
    minio: MinioServer, profile: StorageProfile, operator: S3Store, tmp_path: Path
) -> None:
    """Retention frees space at once, although the bucket keeps versions; other keys stay. Audit: S13."""
    checkpoint = f"{KEYS.checkpoint(6, 1, 'abc')}model.pth"
    (tmp_path / "model").write_bytes(b"x" * 100_000)
    operator.create_file(checkpoint, tmp_path / "model", sha256=hashlib.sha256(b"x" * 100_000).hexdigest())
    for body in (b"1", b"2", b"3"):
        operator.put(MANIFEST, body)
    operator.put(f"{MANIFEST}.other", b"stays")
    operator.put(KEYS.progress(1), b"{}")  # of a prefix without versions
    for key in (checkpoint, MANIFEST, KEYS.progress(1)):
        operator.delete(key)
        assert operator.head(key) is None
    assert [key for key, _, _ in versions(minio, profile.bucket)] == [f"team/{MANIFEST}.other"]
    operator.delete(MANIFEST)  # what is not there
    assert [key for key, _, _ in versions(minio, profile.bucket)] == [f"team/{MANIFEST}.other"]
    assert operator.create(MANIFEST, b"again") and operator.get(MANIFEST, max_bytes=10) == b"again"


def test_a_write_that_follows_a_deletion_is_nobodys_old_version(
    minio: MinioServer, profile: StorageProfile, operator: S3Store
) -> None:
    root, name = minio.admin(), f"team/{MANIFEST}"
    operator.put(MANIFEST, b"old")
    root.remove_object(profile.bucket, name)
    (mark,) = [version for _, version, is_mark in versions(minio, profile.bucket) if is_mark]
    operator.put(MANIFEST, b"new")
    operator._delete_versions(name, mark)
    assert operator.get(MANIFEST, max_bytes=10) == b"new"
    assert len(versions(minio, profile.bucket)) == 1


def test_a_key_that_may_not_remove_versions_leaves_them_to_the_bucket(minio: MinioServer) -> None:
    some = secrets.token_hex(4)
    bucket, user = f"bucket-{some}", f"deletes-{some}"
    root = minio.admin()
    root.make_bucket(bucket)
    root.set_bucket_versioning(bucket, VersioningConfig(ENABLED))
    allow = {"Effect": "Allow", "Action": ["s3:DeleteObject"], "Resource": [f"arn:aws:s3:::{bucket}/*"]}
    minio.add_user(user, "may-delete-only", {"Version": "2012-10-17", "Statement": [allow]})
    root.put_object(bucket, "k", io.BytesIO(b"1"), 1)
    store = S3Store(replace(minio.target(bucket), access_key=user, secret_key="may-delete-only"))
    store.delete("k")
    assert {is_mark for _, _, is_mark in versions(minio, bucket)} == {True, False}
