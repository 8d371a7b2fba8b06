"""Two pods that share the build of a cache of scenes make, byte for byte, what one alone makes."""

from pathlib import Path

from lead_protocol.cache_publication import publish_staged
from lead_protocol.store.folder import FolderStore
from lead_testing.built_caches import whole_build
from lead_testing.bytes_recipe import bytes_recipe
from lead_trainer.data.build import build_share
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.recipes.world.preparation import WorldPreparation

PART_BYTES = 15_000  # of a shard: about two scenes


def built_by(pods: int, example: Path, folder: Path) -> tuple[CacheReader, list[int]]:
    """Returns the cache, and how many shards each pod had complete when it ended."""
    job = whole_build("world", ["train", "val"], {"data": {"image_size": [32, 48]}}, path=str(example))
    store, recipe, shards = FolderStore(folder), bytes_recipe(WorldPreparation()), []
    for index in reversed(range(pods)):
        share = job.model_copy(update={"index": index, "parallelism": pods})
        done = build_share(share, store, FolderTree(example), recipe, lambda record: None, part_bytes=PART_BYTES)
        shards.append(done.shards_done)
    publish_staged(store, job.keys, done.digest)
    return CacheReader(store, done.digest), shards


def test_two_pods_share_a_build_and_make_the_cache_of_one(example: Path, tmp_path: Path) -> None:
    alone, _ = built_by(1, example, tmp_path / "one")
    together, shards = built_by(2, example, tmp_path / "two")
    assert together.manifest == alone.manifest and len(alone.manifest.shards) >= 3
    assert 0 < shards[0] < len(alone.manifest.shards)
