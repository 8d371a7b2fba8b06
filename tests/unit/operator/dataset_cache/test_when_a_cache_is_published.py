"""A DatasetCache is Ready as the operator has published it, and for no record that a pod can write."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lead_operator.bucket.bucket_snapshot import BucketSnapshot
from lead_operator.bucket.bucket_view import BucketView
from lead_operator.bucket.cache_publisher import CachePublisher, check
from lead_operator.bucket.source_watch import list_source
from lead_operator.decisions.dataset_cache.plan import MAX_REBUILDS, decide_dataset_cache
from lead_operator.decisions.dataset_cache.state import read_build_state
from lead_operator.decisions.dataset_cache.verification import find_mismatch, publish_request
from lead_operator.decisions.observed import ObservedBuild, ObservedCacheManifest, ObservedPublication
from lead_operator.decisions.plan import Plan, PublishRequest
from lead_operator.resources.crd_defaults import fill_defaults
from lead_protocol.cache_digest import digest_of
from lead_protocol.cache_publication import CacheRefused
from lead_protocol.manifests import CacheManifest, RouteCounts, StoredObject, sha256_hex
from lead_protocol.object_keys import BuildKeys, CacheKeys
from lead_protocol.run_records import PublishedCache
from lead_protocol.store.folder import FolderStore
from lead_protocol.store.object_store import StoreUnavailable
from lead_testing.makers import CACHE_UID, DIGEST, NOW, PROFILE, SETTINGS, a_cache_body, a_dataset_cache, a_pod

KEYS = BuildKeys("team-a", CACHE_UID)
SHA = "5" * 64
DONE = tuple(
    a_pod(index, name=f"towns-build-g1-a1-{index}", role="build", stage="", phase="Succeeded", finished_at=NOW)
    for index in range(2)
)


def decide(previous: dict[str, Any] | None = None, spec: dict[str, Any] | None = None, **fields: Any) -> Plan:
    observed = ObservedBuild(now=NOW, previous=previous or {}, **fields)
    plan = decide_dataset_cache(a_dataset_cache(**(spec or {})), observed, SETTINGS)
    fill_defaults({**a_cache_body(), "status": plan.status})
    return plan


def ready_condition(plan: Plan) -> dict[str, Any]:
    return next(c for c in plan.status["conditions"] if c["type"] == "Ready")


def built(**fields: Any) -> Plan:
    return decide(decide().status, pods=DONE, result_digest=DIGEST, **fields)


def test_what_the_pods_say_is_built_is_published_first_and_not_ready() -> None:
    """Audit: B3."""
    plan = built()
    assert (plan.status["phase"], plan.status["reason"]) == ("Building", "Publishing")
    assert plan.publish is not None and (plan.publish.digest, plan.publish.source_prefix) == (DIGEST, "datasets/towns")
    assert [(note.type, note.reason) for note in plan.events if note.reason == "Publishing"] == [
        ("Normal", "Publishing")
    ]
    going = built(publication=ObservedPublication(3, 40, 2**30, digest=DIGEST, rebuilds=plan.publish.rebuilds))
    assert "3 of 40 objects (1.0Gi) are verified" in ready_condition(going)["message"]
    away = built(publication=ObservedPublication(3, 40, 0, error="StoreUnavailable: x", digest=DIGEST, rebuilds=0))
    assert "the store failed: StoreUnavailable: x; it is tried again" in ready_condition(away)["message"]


def test_after_an_erased_status_what_is_staged_is_published_before_anything_is_built() -> None:
    plan = decide(result_digest=DIGEST)
    assert plan.publish is not None and not plan.creates and plan.status["reason"] == "Publishing"
    nothing = decide(result_digest=DIGEST, publication=ObservedPublication(missing=True, digest=DIGEST, rebuilds=0))
    assert nothing.publish is None and nothing.creates


def test_a_refused_cache_has_failed_with_what_was_found_and_expected() -> None:
    """Audit: B3."""
    refused = ObservedPublication(
        reason="SpecMismatch", refused="recipe: found x, expected y", digest=DIGEST, rebuilds=0
    )
    plan = built(publication=refused)
    assert (plan.status["phase"], plan.status["reason"]) == ("Failed", "SpecMismatch")
    assert "recipe: found x, expected y" in ready_condition(plan)["message"]
    again = decide(plan.status, pods=DONE, result_digest=DIGEST)
    assert again.status["phase"] == "Failed" and again.publish is None


def test_a_source_that_changed_before_publication_is_built_again_a_few_times() -> None:
    status, ends = decide().status, []
    for _ in range(MAX_REBUILDS + 3):
        number = status["build"]["rebuilds"]
        changed = ObservedPublication(reason="SourceChanged", refused="source: …", digest=DIGEST, rebuilds=number)
        attempt = status["build"]["workers"][0]["attempt"]
        pods = tuple(replace(pod, attempt=attempt, name=pod.name.replace("a1", f"a{attempt}")) for pod in DONE)
        plan = decide(status, pods=pods, result_digest=DIGEST, publication=changed)
        status = plan.status
        ends.append((status["phase"], status["reason"]))
        if status["phase"] == "Failed":
            break
        status = decide(status, pods=pods, result_digest=DIGEST).status
    assert ends[0] == ("Building", "SourceChanged") and ends[-1] == ("Failed", "SourceChanged")
    assert len(ends) <= MAX_REBUILDS + 2


def test_a_pin_on_another_digest_is_published_nowhere() -> None:
    plan = decide(
        decide(spec={"expectDigest": "e" * 64}).status, {"expectDigest": "e" * 64}, pods=DONE, result_digest=DIGEST
    )
    assert (plan.status["reason"], plan.publish) == ("DigestMismatch", None)


def test_a_replaced_manifest_makes_a_ready_cache_ready_no_more() -> None:
    """Audit: B3."""
    manifest = ObservedCacheManifest(DIGEST, 1, 1, {}, 4, 2, 9, sha256="a" * 64)
    ready = decide(result_digest=DIGEST, manifest=manifest, published_sha256="a" * 64, found_sha256="a" * 64)
    assert (ready.status["phase"], ready.status["manifestSha256"]) == ("Ready", "a" * 64)
    plan = decide(ready.status, result_digest=DIGEST, published_sha256="a" * 64, found_sha256="b" * 64)
    assert (plan.status["phase"], plan.status["reason"]) == ("Pending", "ManifestReplaced")
    message = ready_condition(plan)["message"]
    assert "a" * 64 in message and "b" * 64 in message and not plan.creates
    back = decide(plan.status, result_digest=DIGEST, manifest=manifest, published_sha256="a" * 64)
    assert back.status["phase"] == "Ready"


def a_manifest(source_sha256: str, **changes: Any) -> CacheManifest:
    item = StoredObject(key="x", size=6, sha256=sha256_hex(b"routes"))
    fields: dict[str, Any] = {
        "digest": SHA, "recipe": "lead", "builder": "v", "config": {"a": 1, "b": {"c": 2, "d": 3}},
        "source_sha256": source_sha256, "routes": RouteCounts(total=1, kept=1), "routes_object": item, "shards": [],
        "metas": [], "samples": 4, "size_bytes": 6, "collections": {},
    }  # fmt: skip
    named = CacheManifest(**{**fields, **changes})
    digest = digest_of(named)
    routes = item.model_copy(update={"key": CacheKeys("team-a", digest).routes})
    return named.model_copy(update={"digest": digest, "routes_object": routes})


def a_request(digest: str = DIGEST, **spec: Any) -> PublishRequest:
    cache = a_dataset_cache(**spec)
    return publish_request(cache, read_build_state(cache, ObservedBuild(now=NOW)), digest)


@pytest.mark.parametrize(
    ("spec", "changes", "told"),
    [
        ({}, {}, ""),
        ({"config": {"a": 1, "b": {"c": 2}, "preset": "demo", "unread": 5}}, {}, ""),
        ({"config": {"a": 2}}, {}, "config.a: found 1 in the manifest, expected 2"),
        ({"config": {"b": {"c": 9}}}, {}, 'config.b: found {"c": 2, "d": 3} in the manifest, expected {"c": 9}'),
        ({}, {"recipe": "other"}, "recipe: found \"other\" in the manifest, expected 'lead'"),
        ({"collections": ["all"]}, {}, 'collections: found [] in the manifest, expected ["all"]'),
    ],
)  # fmt: skip
def test_a_manifest_answers_recipe_collections_and_config_of_the_spec(
    spec: dict[str, Any], changes: dict[str, Any], told: str
) -> None:
    """Audit: B3."""
    assert find_mismatch(a_request(**spec), a_manifest(SHA, **changes)) == told


def test_a_manifest_of_another_source_is_refused_by_the_operators_own_listing(tmp_path: Path) -> None:
    """Audit: B3."""
    store = FolderStore(tmp_path)
    store.put("datasets/towns/data/r1/a", b"raw")
    listing = list_source(store, "datasets/towns")
    assert listing is not None
    check(store, a_request(), a_manifest(listing.sha256))
    with pytest.raises(CacheRefused, match=f"found listing {SHA}.*expected {listing.sha256} of 1 files") as refused:
        check(store, a_request(), a_manifest(SHA))
    assert refused.value.reason == "SourceChanged"
    check(store, a_request(source={"claimName": "raw", "path": "towns"}), a_manifest(SHA))  # nobody here can see it


class Away(FolderStore):
    """A store that is away until it is told to be back."""

    away = True

    def get(self, key: str, *, max_bytes: int, etag: str = "") -> bytes:
        if self.away:
            raise StoreUnavailable("no answer")
        return super().get(key, max_bytes=max_bytes, etag=etag)


def stage(store: FolderStore, namespace: str = "team-a") -> CacheManifest:
    listing = list_source(store, "datasets/towns")
    assert listing is not None
    manifest = a_manifest(listing.sha256)
    keys = KEYS.staged(manifest.digest)
    store.put(keys.routes, b"routes")
    store.put(keys.manifest, manifest.model_dump_json().encode())
    store.put(KEYS.result(1), f'{{"digest": "{manifest.digest}"}}'.encode())
    return manifest


async def ended(publisher: CachePublisher) -> ObservedPublication:
    while not (found := publisher.observe(CACHE_UID)) or not found.ended:
        await asyncio.sleep(0.01)
    return found


async def test_the_publisher_records_the_cache_last_and_the_next_look_finds_it_ready(
    tmp_path: Path,
) -> None:
    """Audit: B3."""
    store, ends = Away(tmp_path), list[str]()
    manifest = stage(store)
    publisher = CachePublisher(lambda profile: store, ends.append, retry_s=0.01, restored_s=0.01)
    view = BucketView(SETTINGS, lambda profile: store)
    publisher.ask(PROFILE, a_request(manifest.digest))
    while not (seen := publisher.observe(CACHE_UID)) or not seen.error:
        await asyncio.sleep(0.01)
    store.away = False
    assert (await ended(publisher)).done and ends == [CACHE_UID]
    found = await look_at(view)
    sha256 = sha256_hex(store.get(CacheKeys("team-a", manifest.digest).manifest, max_bytes=1 << 20))
    assert found.manifest is not None and found.manifest.sha256 == found.published_sha256 == sha256
    publisher.close()
    view.close()


async def test_a_damaged_cache_of_an_earlier_resource_is_named_until_it_is_mended(
    tmp_path: Path,
) -> None:
    store, ends = FolderStore(tmp_path), list[str]()
    manifest = stage(store)
    publisher = CachePublisher(lambda profile: store, ends.append, retry_s=0.01, restored_s=0.01)
    publisher.ask(PROFILE, a_request(manifest.digest))
    await ended(publisher)
    routes = manifest.routes_object.key
    for restored in (True, False):
        publisher.forget(CACHE_UID)
        store.delete(routes)
        publisher.ask(PROFILE, a_request(manifest.digest))  # by a resource of the same name that was created again
        while not (seen := publisher.observe(CACHE_UID)) or not seen.damaged:
            await asyncio.sleep(0.01)
        assert (seen.reason, seen.ended) == ("ObjectMissing", False) and f"{routes}: found no object" in seen.damaged
        assert store.head(CacheKeys("team-a", manifest.digest).manifest) is not None, "nothing is removed"
        if restored:
            store.put(routes, b"routes")
        else:
            store.delete(CacheKeys("team-a", manifest.digest).manifest)
        end = await ended(publisher)
        assert (end.done, end.missing) == (restored, not restored)
    publisher.close()


def test_a_damaged_cache_is_pending_with_what_to_restore_and_rebuilt_once_removed() -> None:
    damage = "1 of 40 objects (1 missing): s3://lead/caches/team-a/d1/shards/0: found no object"
    known: dict[str, Any] = {"digest": DIGEST, "rebuilds": 0}
    plan = built(publication=ObservedPublication(reason="ObjectMissing", damaged=damage, **known))
    assert (plan.status["phase"], plan.status["reason"]) == ("Pending", "ObjectMissing")
    said = ready_condition(plan)["message"]
    assert damage in said and f"remove everything below caches/team-a/{DIGEST}/" in said
    assert plan.publish is not None and plan.requeue_after_s and not plan.deletes
    assert said in [note.message for note in plan.events]
    after_restart = decide(plan.status, pods=DONE, result_digest=DIGEST)
    assert after_restart.publish == plan.publish
    late: dict[str, Any] = {"pods": tuple(replace(pod, finished_at=NOW - timedelta(seconds=60)) for pod in DONE)}
    removed = decide(plan.status, result_digest=DIGEST, publication=ObservedPublication(missing=True, **known), **late)
    again = decide(removed.status, result_digest=DIGEST, **late)
    assert [pod["metadata"]["name"] for pod in again.creates] == ["towns-build-g1-a2-0", "towns-build-g1-a2-1"]


async def test_a_forged_record_or_manifest_below_builds_makes_nothing_ready(tmp_path: Path) -> None:
    """Audit: B3."""
    store = FolderStore(tmp_path)
    manifest = stage(store)
    forged = manifest.model_copy(update={"samples": 666}).model_dump_json().encode()
    store.put(CacheKeys("team-a", manifest.digest).manifest, forged)
    record = PublishedCache(digest=manifest.digest, manifest_sha256=sha256_hex(forged)).model_dump_json().encode()
    store.put(f"{KEYS.prefix}published-1.json", record)
    view = BucketView(SETTINGS, lambda profile: store)
    assert (await look_at(view)).manifest is None
    store.put(KEYS.control.published(1), record.replace(sha256_hex(forged).encode(), b"0" * 64))
    found = await look_at(view)
    assert found.manifest is None and found.found_sha256 == sha256_hex(forged)
    view.close()


async def look_at(view: BucketView) -> BucketSnapshot:
    return await view.read_build(PROFILE, "team-a", CACHE_UID, 1, shares=2, now=NOW, live=frozenset(), max_age_s=0.0)
