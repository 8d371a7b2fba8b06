"""A staged cache is published by copies inside the store: verified, repeatable at any point, its manifest last."""

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lead_operator.cli.storage_init import Account, EmbeddedStore, ProfileAccounts, init_storage
from lead_operator.settings import StorageProfile
from lead_protocol.cache_digest import digest_of
from lead_protocol.cache_publication import (
    CacheDamaged,
    CacheRefused,
    publication_steps,
    publish_staged,
    read_manifest,
)
from lead_protocol.manifests import CacheManifest, CollectionEntry, RouteCounts, ShardEntry, StoredObject
from lead_protocol.object_keys import BuildKeys, CacheKeys
from lead_protocol.store.object_store import ObjectInfo, ObjectNotFound, ObjectReplaced, ObjectStore
from lead_protocol.store.s3 import S3Store
from lead_protocol.store.s3_target import MIB
from lead_testing.bytes_recipe import FailingStore, Killed
from lead_testing.minio_server import ROOT_PASSWORD, ROOT_USER, MinioServer

BUILD = BuildKeys("team-a", "6a1b8f04-0000-4000-8000-000000000002")


def a_manifest(**changes: Any) -> CacheManifest:
    """Returns a manifest of its own digest: two shards, one collection, one file of metas."""
    blank = StoredObject(key="x", size=1, sha256="0" * 64)
    named = CacheManifest(
        digest="0" * 64, recipe="lead", builder="test/1", config={"a": 1}, source_sha256="5" * 64,
        routes=RouteCounts(total=1, kept=1), routes_object=blank, shards=[], metas=[], samples=4, size_bytes=9,
        collections={"all": CollectionEntry(object=blank, samples=4, buckets=1)},
    )  # fmt: skip
    keys = CacheKeys(BUILD.namespace, digest_of(named))
    shards = [ShardEntry(object=an_object(keys.shard(n, "a" * 64), content(n)), records=2) for n in range(2)]
    fields = {
        "digest": keys.digest, "shards": shards, "metas": [an_object(keys.metas(0, "b" * 64), b"metas")],
        "routes_object": an_object(keys.routes, b"routes"),
        "collections": {"all": CollectionEntry(object=an_object(keys.bucket("all"), b"rows"), samples=4, buckets=1)},
    }  # fmt: skip
    return named.model_copy(update={**fields, **changes})


def content(number: int) -> bytes:
    return bytes([number]) * (1000 + number)


def an_object(key: str, data: bytes) -> StoredObject:
    return StoredObject(key=key, size=len(data), sha256=hashlib.sha256(data).hexdigest())


def stage(store: ObjectStore, manifest: CacheManifest) -> CacheKeys:
    keys = BUILD.staged(manifest.digest)
    parts = [content(0), content(1), b"metas", b"routes", b"rows"]
    for item, data in zip(manifest.objects, parts, strict=True):
        store.put(keys.as_staged(item.key), data)
    store.put(keys.manifest, manifest.model_dump_json().encode())
    return keys


def keys_below(store: ObjectStore, prefix: str) -> set[str]:
    return {info.key for info in store.list(prefix)}


def whole(manifest: CacheManifest) -> set[str]:
    return {item.key for item in manifest.objects} | {CacheKeys(BUILD.namespace, manifest.digest).manifest}


def test_a_staged_cache_is_published_byte_for_byte_and_its_staging_goes(store: ObjectStore) -> None:
    """Audit: B3."""
    manifest = a_manifest()
    staged = stage(store, manifest)
    written = store.get(staged.manifest, max_bytes=1 << 20)
    published = publish_staged(store, BUILD, manifest.digest)
    assert published is not None and published.sha256 == hashlib.sha256(written).hexdigest()
    assert store.get(staged.published.manifest, max_bytes=1 << 20) == written
    assert keys_below(store, "caches/") == whole(manifest) and keys_below(store, "builds/") == set()
    again = publish_staged(store, BUILD, manifest.digest)
    assert again == published


def test_nothing_staged_and_nothing_published_is_nothing(store: ObjectStore) -> None:
    assert publish_staged(store, BUILD, "d" * 64) is None


@pytest.mark.parametrize("land", [True, False])
def test_a_publication_killed_at_any_write_goes_on_and_shows_no_half_cache(store: ObjectStore, land: bool) -> None:
    manifest = a_manifest()
    keys = CacheKeys(BUILD.namespace, manifest.digest)
    for fail_at in range(100):
        stage(store, manifest)
        failing = FailingStore(store, fail_at=fail_at, land=land)
        try:
            assert publish_staged(failing, BUILD, manifest.digest) is not None
        except Killed:
            if store.head(keys.manifest) is not None:
                assert keys_below(store, "caches/") == whole(manifest)
        else:
            break
        assert publish_staged(store, BUILD, manifest.digest) is not None
        assert keys_below(store, "caches/") == whole(manifest) and keys_below(store, "builds/") == set()
        for key in keys_below(store, "caches/"):
            store.delete(key)
    assert fail_at == len(whole(manifest))


def test_what_an_earlier_try_has_copied_is_not_copied_again(store: ObjectStore) -> None:
    manifest = a_manifest()
    staged = stage(store, manifest)
    steps = publication_steps(store, staged, lambda _: None, BUILD.staged_prefix)
    for _ in range(2):
        next(steps)
    counting = FailingStore(store)
    publish_staged(counting, BUILD, manifest.digest)
    assert counting.writes == len(whole(manifest)) - 2


def no_shard(store: ObjectStore, keys: CacheKeys, manifest: CacheManifest) -> None:
    store.delete(keys.as_staged(manifest.shards[0].object.key))


def other_size(store: ObjectStore, keys: CacheKeys, manifest: CacheManifest) -> None:
    store.put(keys.as_staged(manifest.shards[0].object.key), b"short")


def other_bytes(store: ObjectStore, keys: CacheKeys, manifest: CacheManifest) -> None:
    store.put(keys.as_staged(manifest.shards[1].object.key), b"x" * 1001)


def rewritten(**changes: Any) -> Callable[[ObjectStore, CacheKeys, CacheManifest], None]:
    def rewrite(store: ObjectStore, keys: CacheKeys, manifest: CacheManifest) -> None:
        store.put(keys.manifest, manifest.model_copy(update=changes).model_dump_json().encode())

    return rewrite


def no_json(store: ObjectStore, keys: CacheKeys, manifest: CacheManifest) -> None:
    store.put(keys.manifest, b"[" * 1000)


def verified(store: ObjectStore, manifest: CacheManifest) -> int:
    """Returns how many steps a second resource takes to have the published cache as its own."""
    staged = BUILD.staged(manifest.digest)
    steps = list(publication_steps(store, staged, lambda _: None, BUILD.staged_prefix, verify_published=True))
    assert steps[-1].published is not None
    return len(steps)


def test_a_cache_that_was_published_before_is_taken_whole_or_not_at_all(store: ObjectStore) -> None:
    manifest = a_manifest()
    stage(store, manifest)
    publish_staged(store, BUILD, manifest.digest)
    assert verified(store, manifest) == len(manifest.objects) + 1
    shard, metas = manifest.shards[0].object, manifest.metas[0]
    store.put(shard.key, b"short")
    with pytest.raises(CacheDamaged, match=rf"1 of 5 objects \(0 missing\).*{shard.key}: found 5 bytes, expected 1000"):
        verified(store, manifest)
    store.put(shard.key, b"x" * shard.size)  # after the publication: of it alone S3 keeps no SHA-256
    with pytest.raises(CacheDamaged, match=rf"{shard.key}: found SHA-256 .*, expected {shard.sha256}"):
        verified(store, manifest)
    store.delete(metas.key)
    held = keys_below(store, "caches/")
    with pytest.raises(CacheDamaged, match=r"2 of 5 objects \(1 missing\)") as damage:
        verified(store, manifest)
    assert f"{metas.key}: found no object" in str(damage.value) and damage.value.reason == "ObjectMissing"
    assert keys_below(store, "caches/") == held, "nothing is removed"
    store.put(shard.key, content(0))
    store.put(metas.key, b"metas")
    assert verified(store, manifest)


THEIRS = StoredObject(key="caches/team-b/dd/routes.parquet", size=6, sha256="0" * 64)


@pytest.mark.parametrize(
    ("damage", "reason", "sentence"),
    [
        (no_shard, "ObjectMissing", "is missing; the manifest names 1000 bytes"),
        (other_size, "ObjectMismatch", "found 5 bytes, expected 1000"),
        (other_bytes, "ObjectMismatch", "found SHA-256 "),
        (rewritten(source_sha256="6" * 64), "DigestMismatch", "that it records give "),
        (rewritten(config={"a": 2}), "DigestMismatch", "that it records give "),
        (rewritten(digest="7" * 64), "DigestMismatch", f"found digest {'7' * 64}"),
        (rewritten(routes_object=THEIRS), "BadManifest", "found object 'caches/team-b/dd/routes.parquet'"),
        (rewritten(samples=10**30), "BadManifest", "is not a cache manifest"),
        (no_json, "BadManifest", "is not a cache manifest"),
    ],
)  # fmt: skip
def test_a_staged_cache_that_is_not_what_it_claims_is_refused_and_nothing_of_it_is_ready(
    store: ObjectStore, damage: Callable[[ObjectStore, CacheKeys, CacheManifest], None], reason: str, sentence: str
) -> None:
    """Audit: B3. Audit: minor-integers."""
    manifest = a_manifest()
    staged = stage(store, manifest)
    damage(store, staged, manifest)
    with pytest.raises(CacheRefused, match=sentence) as refused:
        publish_staged(store, BUILD, manifest.digest)
    assert refused.value.reason == reason
    assert store.head(staged.published.manifest) is None
    for item in manifest.objects:
        if (info := store.attest(item.key)) is not None:
            assert info.sha256 == item.sha256


def test_a_store_that_keeps_no_checksums_has_its_copies_read(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    attest = store.attest

    def blind(key: str) -> ObjectInfo | None:
        found = attest(key)
        return replace(found, sha256="") if found else None

    monkeypatch.setattr(store, "attest", blind)
    manifest = a_manifest()
    staged = stage(store, manifest)
    other_bytes(store, staged, manifest)
    with pytest.raises(CacheRefused, match="found SHA-256"):
        publish_staged(store, BUILD, manifest.digest)
    stage(store, manifest)
    assert publish_staged(store, BUILD, manifest.digest) is not None


def test_a_published_manifest_that_somebody_has_replaced_is_told_by_its_sum(store: ObjectStore) -> None:
    manifest = a_manifest()
    stage(store, manifest)
    published = publish_staged(store, BUILD, manifest.digest)
    keys = CacheKeys(BUILD.namespace, manifest.digest)
    store.put(keys.manifest, manifest.model_copy(update={"samples": 666}).model_dump_json().encode())
    found = read_manifest(store, keys)
    assert published is not None and found is not None and found.sha256 != published.sha256


def test_the_operators_own_key_publishes_in_a_bucket_with_versions(minio: MinioServer) -> None:
    """Audit: B3."""
    name = f"p{secrets.token_hex(4)}"
    profile = StorageProfile(name, minio.endpoint, f"bucket-{name}", prefix="team/a", secure=False)
    accounts = ProfileAccounts(profile, Account(f"lead-operator-{name}", "operator-secret"), {})
    init_storage(EmbeddedStore(Account(ROOT_USER, ROOT_PASSWORD), (accounts,)))
    target = minio.target(profile.bucket, "team/a")
    root = S3Store(target)
    own = S3Store(replace(target, access_key=f"lead-operator-{name}", secret_key="operator-secret"))
    manifest = a_manifest()
    stage(root, manifest)
    assert publish_staged(own, BUILD, manifest.digest) is not None
    assert keys_below(root, "caches/") == whole(manifest) and keys_below(root, "builds/") == set()


def test_a_copy_is_of_the_version_that_was_seen(store: ObjectStore) -> None:
    store.put("a", b"old")
    info = store.head("a")
    assert info is not None
    store.put("a", b"newer")
    with pytest.raises(ObjectReplaced):
        store.copy("a", "b", etag=info.etag)
    with pytest.raises(ObjectNotFound):
        store.copy("gone", "b", etag=info.etag)
    assert store.head("b") is None and store.attest("b") is None


def test_the_store_computes_the_sum_of_a_copy_of_an_object_that_came_in_parts(s3: S3Store, tmp_path: Any) -> None:
    data = hashlib.shake_256(b"seed").digest(11 * MIB)
    (tmp_path / "big").write_bytes(data)
    sha256 = hashlib.sha256(data).hexdigest()
    s3.create_file("big", tmp_path / "big", sha256=sha256)
    info = s3.attest("big")
    assert info is not None and "-" in info.etag and info.sha256 == ""
    s3.copy("big", "copy", etag=info.etag)
    copied = s3.attest("copy")
    assert copied is not None and (copied.size, copied.sha256) == (11 * MIB, sha256)
