"""Measures the recipe `world`: windows a second, a cold window's shards and bytes, a step of `tiny`, and parameters.

Run as `python tests/bench/world_figures.py [--rounds 7]`, on one thread. The cache holds pictures of 256 x 256 pixels
with noise, 38 kB each; a real nuScenes keyframe of that size has 29 kB. "Decode only" reads a window's records and
decodes their pictures into memory that stays in the CPU cache, without a loader: an upper bound. Ratios are those of
CPU time, medians of rounds in turn, since other programs use the machine too. Exits with 1 unless

- the warm loader delivers DECODE_SHARE of the bound, without augmentation, which the bound has not either;
- a cold window opens at most two shards, and a cold epoch reads at most BYTES_SHARE of the cache from the store;
- a step of the preset `tiny` takes at most STEP_S of CPU time;
- parameters are PARAMETERS.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lead_protocol.store.folder import FolderStore
from lead_testing.built_caches import build_and_publish, whole_build
from lead_testing.bytes_recipe import FailingStore, bytes_recipe
from lead_trainer.contract.samples import stacked
from lead_trainer.contract.step import Position, StepContext
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.jpeg_picture import JpegPicture, stored_picture
from lead_trainer.data.loader import Loader
from lead_trainer.data.packed_backend import PackedBackend
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.example_worlds.world.tree import ExampleTree, write_example_tree
from lead_trainer.recipes.world.config import WorldConfig
from lead_trainer.recipes.world.dataset import WindowSamples, training_samples, validation_samples
from lead_trainer.recipes.world.ingest.pictures import encoded, read_picture
from lead_trainer.recipes.world.model import build_world_model, parameter_counts
from lead_trainer.recipes.world.preparation import WorldPreparation
from lead_trainer.recipes.world.recipe import RECIPE

DECODE_SHARE, MOST_SHARDS, BYTES_SHARE, STEP_S = 0.9, 2, 1.01, 0.5
PARAMETERS = {"base": 61.22, "quick": 39.06, "memory": 39.06, "best": 116.16, "tiny": 0.63}  # millions
TREE = ExampleTree(train=12, val=1, keyframes=20, size=(256, 256))
NOISE, SHARD_BYTES = 9.0, 1 << 20
STILL = {"brightness": 0.0, "contrast": 0.0, "crop_scale": [1.0, 1.0], "flip": 0.0}
BATCH = 4


def cache_of(folder: Path) -> tuple[FailingStore, str, float]:
    """Returns a store that counts reads, the digest of a cache of noisy drives in it, and the bytes of a picture."""
    write_example_tree(folder / "tree", TREE)
    draw = np.random.default_rng(0)
    paths = sorted((folder / "tree").rglob("*.jpg"))
    for path in paths:
        picture = read_picture(path.read_bytes(), path.name)
        noisy = picture + draw.normal(0.0, NOISE, picture.shape[:2])[..., None]
        path.write_bytes(encoded(np.clip(noisy, 0, 255).astype(np.uint8)))
    store, job = FailingStore(FolderStore(folder / "store")), whole_build("world", ["train", "val"], {"data": {}})
    recipe, tree = bytes_recipe(WorldPreparation()), FolderTree(folder / "tree")
    done = build_and_publish(job, store, tree, recipe, lambda record: None, part_bytes=SHARD_BYTES)
    return store, done.digest, sum(path.stat().st_size for path in paths) / len(paths)


def cold_reads(store: FailingStore, digest: str, folder: Path) -> tuple[int, float]:
    """Returns the most shards that one cold window opens, and what a cold epoch reads of the cache's bytes."""

    def opened(name: str) -> tuple[CacheReader, list[WindowSamples]]:
        cache = CacheReader(store, digest, PackedBackend(store, folder / name))
        caches, config = {"local": cache}, config_of(STILL)
        return cache, [training_samples(config, caches), validation_samples(config, caches)]

    most, count = 0, len(opened("cold")[1][0])
    for number, index in enumerate(range(0, count, 20)):
        cache, (samples, _) = opened(f"cold-{number}")
        shards = {shard.object.key for shard in cache.manifest.shards}
        store.reads.clear()
        samples.load(index, 0)
        most = max(most, len(shards & set(store.reads)))
        cache.close()
    cache, splits = opened("cold-epoch")
    sizes = {shard.object.key: shard.object.size for shard in cache.manifest.shards}
    store.reads.clear()
    for samples in splits:
        for _ in Loader(samples, stacked, batch_size=BATCH, seed=1, threads=1).batches(0):
            pass
    cache.close()
    return most, sum(sizes[key] for key in store.reads if key in sizes) / sum(sizes.values())


def loading_ms(store: FailingStore, digest: str, folder: Path, rounds: int) -> dict[str, float]:
    """Returns the CPU milliseconds of a warm window: decoded only, loaded, loaded with the default augmentation."""
    cache = CacheReader(store, digest, PackedBackend(store, folder / "warm"))
    plain, changed = (training_samples(config_of(keys), {"local": cache}) for keys in (STILL, {}))
    pictures, place = cache.rows("train").sample, np.empty((256, 256, 3), np.uint8)
    pictures_a_window = config_of({}).data.sequence_length / len(pictures)

    def decode() -> float:
        for sample in pictures:
            picture = stored_picture(cache.fields(int(sample))["image"])
            assert isinstance(picture, JpegPicture)
            picture.write_into(place)
        return pictures_a_window

    def load(samples: WindowSamples, loader: Loader) -> float:
        for _ in loader.batches(0):
            pass
        return 1 / len(samples)

    loaders = [Loader(each, stacked, batch_size=BATCH, seed=1, threads=1) for each in (plain, changed)]
    ways: dict[str, Callable[[], float]] = {
        "decode only": decode,
        "loaded": lambda: load(plain, loaders[0]),
        "augmented": lambda: load(changed, loaders[1]),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            begin = time.process_time()
            share = way()
            if number:  # the first round fills the node's cache
                found[name].append(1e3 * (time.process_time() - begin) * share)
    cache.close()
    return {name: statistics.median(values) for name, values in found.items()}


def step_s(steps: int) -> float:
    """Returns the CPU seconds of a step of the preset `tiny` with its batch: forward, losses, backward, AdamW."""
    config = RECIPE.config({}, "tiny")
    model = build_world_model(config).train()
    optimizer: Any = RECIPE.optimizer(model, config)
    length, (height, width) = config.data.sequence_length, config.data.image_size
    batch = {
        "images": torch.rand(config.batch_size, length, 3, height, width) * 2 - 1,
        "actions": torch.rand(config.batch_size, length - 1, 4),
    }
    context = StepContext(config=config, at=Position(epoch=config.epochs - 1, epoch_steps=(1,) * config.epochs))
    times = []
    for _ in range(steps):
        begin = time.process_time()
        optimizer.zero_grad(set_to_none=True)
        RECIPE.step(model, batch, context).loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        times.append(time.process_time() - begin)
    return statistics.median(times[1:])


def config_of(augmentation: Any) -> WorldConfig:
    """Returns the default config with another augmentation."""
    return RECIPE.config({"data": {"augmentation": augmentation}})


def main() -> int:
    """Measures, prints, and returns 1 where a bar is missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    counted = {}
    for preset in PARAMETERS:
        with torch.device("meta"):
            counted[preset] = round(parameter_counts(build_world_model(RECIPE.config({}, preset)))["total"] / 1e6, 2)
    with tempfile.TemporaryDirectory() as folder:
        store, digest, picture_bytes = cache_of(Path(folder))
        most, share = cold_reads(store, digest, Path(folder))
        loading = loading_ms(store, digest, Path(folder), options.rounds)
    step = step_s(options.rounds + 1)
    ratio = loading["decode only"] / loading["loaded"]
    print(f"load {', '.join(f'{load:.1f}' for load in os.getloadavg())}; {picture_bytes / 1e3:.1f} kB a picture")
    print("CPU of a warm window: " + ", ".join(f"{name} {value:.2f} ms" for name, value in loading.items()))
    print(f"loaded {ratio:.2f} of the bound, augmented {loading['decode only'] / loading['augmented']:.2f}")
    print(f"a cold window opens {most} shard(s); a cold epoch reads {share:.3f} of the cache's bytes")
    print(f"a step of tiny takes {step:.2f} s of CPU")
    print("parameters: " + ", ".join(f"{preset} {count:.2f} M" for preset, count in counted.items()))
    good = ratio >= DECODE_SHARE and most <= MOST_SHARDS and share <= BYTES_SHARE and step <= STEP_S
    return 0 if good and counted == PARAMETERS else 1


if __name__ == "__main__":
    sys.exit(main())
