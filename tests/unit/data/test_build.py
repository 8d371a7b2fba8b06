"""A build may be killed, repeated and shared among pods at will: it ends in the same manifest, or says why not."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lead_protocol.manifests import CacheManifest, sha256_hex
from lead_protocol.object_keys import CacheKeys
from lead_protocol.progress_record import BuildRecord
from lead_testing.built_caches import build_and_publish
from lead_trainer.data.build_workers import LostBuildWorker
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.fsck import fsck_cache
from lead_trainer.errors import BadData

Make = Callable[..., Any]


def run(job: Any, store: Any, tree: Any, recipe: Any, **options: Any) -> BuildRecord:
    return build_and_publish(job, store, tree, recipe, lambda record: None, part_bytes=150, **options)


def manifest_bytes(store: Any, digest: str) -> bytes:
    return bytes(store.inner.get(CacheKeys("local", digest).manifest, max_bytes=1 << 20))


def everything(store: Any) -> dict[str, bytes]:
    return {info.key: store.inner.get(info.key, max_bytes=1 << 20) for info in store.inner.list("caches/")}


def test_a_built_cache_gives_back_every_sample(job: Make, store: Any, tree: Any, recipe: Any) -> None:
    done = run(job(), store, tree, recipe)
    reader = CacheReader(store, done.digest)
    rows = reader.rows("all")
    assert done.phase == "Done" and done.samples == 12 and done.shards_total > 3
    for route, frame, sample in zip(rows.route, rows.frame, rows.sample, strict=True):
        assert bytes(reader.fields(int(sample))["data"]) == tree.contents[f"{route}/{frame}"]
        assert reader.metas().row(str(route), int(frame)) == {"sum": sum(tree.contents[f"{route}/{frame}"])}
    assert reader.verdicts().column("reason").to_pylist() == ["kept", "kept", "bad"]
    assert reader.manifest.routes.reasons == {"bad": 1}
    assert fsck_cache(store, CacheKeys("local", done.digest)) == []


def test_a_build_killed_at_any_write_ends_in_the_same_bytes(
    job: Make, fresh_store: Make, tree: Any, recipe: Any
) -> None:
    clean = fresh_store()
    digest = run(job(), clean, tree, recipe).digest
    expected, writes = everything(clean), clean.writes
    assert writes > 10
    for land in (False, True):
        for kill_at in range(writes):
            store = fresh_store(fail_at=kill_at, land=land)
            with pytest.raises(BaseException, match=f"write {kill_at}"):
                run(job(), store, tree, recipe)
            assert run(job(), store, tree, recipe).digest == digest
            assert everything(store) == expected
            assert store.inner.head(job().keys.result(1)) is not None


def test_a_person_needs_only_to_read_a_cache_that_is_complete(job: Make, store: Any, tree: Any, recipe: Any) -> None:
    """Such as one beside a shared dataset; where the operator asks, the result is written for it."""
    done = run(job(), store, tree, recipe)
    writes = store.writes
    assert run(job(), store, tree, recipe, takes_another=True).digest == done.digest
    assert store.writes == writes
    assert run(job(), store, tree, recipe).digest == done.digest
    assert store.writes == writes + 1


@pytest.mark.parametrize("parallelism", [2, 3, 7])
def test_any_number_of_pods_builds_the_same_bytes(
    job: Make, fresh_store: Make, tree: Any, recipe: Any, parallelism: int
) -> None:
    alone, together = fresh_store(), fresh_store()
    run(job(), alone, tree, recipe)
    records = [
        run(job(index=index, parallelism=parallelism), together, tree, recipe) for index in reversed(range(parallelism))
    ]
    assert everything(together) == everything(alone)
    assert [bool(record.message) for record in records] == [True] * (parallelism - 1) + [False]


def test_thread_counts_do_not_change_the_bytes(job: Make, fresh_store: Make, tree: Any, recipe: Any) -> None:
    one, four = fresh_store(), fresh_store()
    run(job(), one, tree, recipe, threads=1)
    run(job(), four, tree, recipe, threads=4)
    assert everything(one) == everything(four)


def test_a_cache_that_is_there_is_not_built_again(job: Make, store: Any, tree: Any, recipe: Any) -> None:
    run(job(), store, tree, recipe)
    writes = store.writes
    again = run(job(generation=2), store, tree, recipe)
    assert again.phase == "Done" and again.samples == 12
    assert store.writes == writes + 1  # the result record of the new generation


def test_a_pod_that_is_lost_leaves_no_cache_behind(job: Make, store: Any, tree: Any, recipe: Any) -> None:
    record = run(job(index=0, parallelism=2), store, tree, recipe)
    assert store.head(CacheKeys("local", record.digest).manifest) is None
    with pytest.raises(BadData, match="does not exist or is not complete"):
        CacheReader(store, record.digest)


def test_a_part_whose_shard_was_deleted_is_built_again(job: Make, store: Any, tree: Any, recipe: Any) -> None:
    digest = run(job(), store, tree, recipe).digest
    before = everything(store)
    store.delete(CacheKeys("local", digest).manifest)
    shard = next(key for key in before if key.endswith(".lds"))
    store.delete(shard)
    run(job(), store, tree, recipe)
    assert everything(store) == before


def test_a_missing_raw_file_ends_the_build_with_its_name(job: Make, store: Any, tree: Any, recipe: Any) -> None:
    listed = tree.files()
    del tree.contents["r1/3"]
    tree.files = lambda: listed
    with pytest.raises(BadData, match="r1/3"):
        run(job(), store, tree, recipe)


def test_a_missing_file_of_a_dropped_route_is_no_matter(job: Make, store: Any, tree: Any, recipe: Any) -> None:
    listed = tree.files()
    del tree.contents["x3/3"]
    tree.files = lambda: listed
    assert run(job(), store, tree, recipe).samples == 12


def test_an_empty_dataset_says_so(job: Make, store: Any, tree: Any, recipe: Any) -> None:
    tree.contents.clear()
    with pytest.raises(BadData, match="holds no file"):
        run(job(), store, tree, recipe)
    tree.contents["x1/0"] = b"1"
    with pytest.raises(BadData, match="no frame of 1 routes is usable"):
        run(job(), store, tree, recipe)


def test_another_digest_than_expected_is_refused_before_anything_is_written(
    job: Make, store: Any, tree: Any, recipe: Any
) -> None:
    with pytest.raises(BadData, match="expectDigest: found 00"):
        run(job(expect_digest="00"), store, tree, recipe)
    assert store.writes == 0


def test_the_digest_follows_what_the_bytes_depend_on(job: Make, fresh_store: Make, tree: Any, recipe: Any) -> None:
    def digest(**changes: Any) -> str:
        return run(job(**changes), fresh_store(), tree, recipe).digest

    base = digest()
    assert digest(attempt=2, generation=9, parallelism=1) == base
    assert digest(config={"unread": 1}) == base
    assert digest(config={"repeat": 2}) != base
    assert digest(collections=["all", "more"]) != base
    assert digest(collections=["more", "all", "all"]) == digest(collections=["all", "more"])
    assert digest(collections=[]) == digest(collections=["all", "more"])
    tree.contents["r1/0"] = b"other"
    changed = digest()
    recipe.preparation.version = "bytes/2"
    assert len({base, changed, digest()}) == 3


def test_fsck_names_missing_short_and_changed_objects(job: Make, store: Any, tree: Any, recipe: Any) -> None:
    digest = run(job(), store, tree, recipe).digest
    manifest = CacheManifest.model_validate_json(manifest_bytes(store, digest))
    gone, short, changed = (entry.object for entry in manifest.shards[:3])
    store.delete(gone.key)
    for item, keep, extra in ((short, -1, b""), (changed, -1, b"\0")):
        data = store.get(item.key, max_bytes=item.size)
        store.put(item.key, data[:keep] + extra)
    faults = {finding.key: finding.fault for finding in fsck_cache(store, CacheKeys("local", digest))}
    assert set(faults) == {gone.key, short.key, changed.key}
    assert faults[gone.key] == "is missing" and "SHA-256" in faults[changed.key]


def test_progress_only_grows(job: Make, store: Any, tree: Any, recipe: Any) -> None:
    records: list[BuildRecord] = []
    build_and_publish(job(), store, tree, recipe, records.append, part_bytes=150)
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    assert [r.shards_done for r in records] == sorted(r.shards_done for r in records)
    assert records[0].phase == "Listing" and records[-1].phase == "Done"


def test_processes_write_the_bytes_that_threads_write(job: Make, fresh_store: Make, tree: Any, recipe: Any) -> None:
    by_threads, by_processes = fresh_store(), fresh_store()
    run(job(), by_threads, tree, recipe, processes=0)
    run(job(), by_processes, tree, recipe, processes=2)
    assert everything(by_threads) == everything(by_processes)


def test_a_build_process_that_dies_ends_the_build_with_the_samples_names(
    job: Make, store: Any, tree: Any, recipe: Any
) -> None:
    class Deadly(type(recipe.preparation)):  # type: ignore[misc]
        def record(self, tree: Any, config: Any, sample: Any) -> Any:
            if sample.route == "r2" and sample.frame == 4:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().record(tree, config, sample)

    deadly = replace(recipe, preparation=Deadly())
    with pytest.raises(LostBuildWorker, match=r"r2 frame 0004.*finished parts are kept"):
        run(job(), store, tree, deadly, processes=2)
    assert run(job(), store, tree, recipe).samples == 12


def test_an_error_in_a_build_process_is_the_users_error(job: Make, store: Any, tree: Any, recipe: Any) -> None:
    listed = tree.files()
    del tree.contents["r1/3"]
    tree.files = lambda: listed
    with pytest.raises(BadData, match="r1/3"):
        run(job(), store, tree, recipe, processes=2)


def test_progress_is_told_within_a_part(
    job: Make, store: Any, tree: Any, recipe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lead_trainer.data.build.REPORT_EVERY_S", 0.0)
    records: list[BuildRecord] = []
    build_and_publish(job(), store, tree, recipe, records.append, part_bytes=10**6)
    counts = [record.samples_done for record in records if record.phase == "Building"]
    assert counts == sorted(counts) and set(range(1, 13)) <= set(counts)
    within = [record for record in records if record.samples_per_s]
    assert all(record.share_samples == 12 and record.eta_s is not None for record in within)
    assert within[-1].eta_s == 0


def test_a_manifest_that_was_replaced_after_its_publication_is_refused_with_both_sums(
    tree: Any, store: Any, recipe: Any, job: Any
) -> None:
    """Audit: B3."""
    digest = build_and_publish(job(), store, tree, recipe, lambda record: None).digest
    keys = CacheKeys("local", digest)
    sound = store.get(keys.manifest, max_bytes=1 << 20)
    sha256 = sha256_hex(sound)
    assert CacheReader(store, digest, manifest_sha256=sha256).manifest.digest == digest
    forged = sound.replace(b'"recipe":"bytes"', b'"recipe":"other"')
    store.put(keys.manifest, forged)
    with pytest.raises(BadData, match=f"has SHA-256 {sha256_hex(forged)}, expected {sha256}"):
        CacheReader(store, digest, manifest_sha256=sha256)
