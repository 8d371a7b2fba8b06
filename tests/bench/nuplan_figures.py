"""Prints what preparing, loading and a step of the recipe `nuplan` cost in CPU time, on a generated log.

Run as `PYTHONPATH=tests python tests/bench/nuplan_figures.py [--rounds 7]`, on one thread. CPU times of the process are
those that other programs of the machine disturb least; loading is the median of rounds in turn.

- preparing: the cache of a log of 28 s with six cameras, in the size of preset `memory`
- decode only: a sample's record is read, its six pictures decoded into one place and its points copied to another,
  without a loader: a lower bound
- loaded, augmented: the same samples through the loader into batches, without and with the preset's augmentation, up to
  where a GPU takes over, which separates the channels
- step: one training step of preset `tiny`, forward to update
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import torch

from lead_protocol.store.folder import FolderStore
from lead_testing.built_caches import build_and_publish, whole_build
from lead_trainer.bench.model_step import Variant, step_trial
from lead_trainer.commands.inspect_data import RunData, data_of, first_batch
from lead_trainer.data.array_block import unpack_arrays
from lead_trainer.data.jpeg_picture import JpegPicture, stored_picture
from lead_trainer.data.loader import Loader
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.engine.samples.data_facts import computed_facts
from lead_trainer.example_worlds.nuplan.tree import ExampleTree, write_example_tree
from lead_trainer.recipes.nuplan.bundle_record import PICTURE, POINTS
from lead_trainer.recipes.nuplan.recipe import RECIPE

LOG = ExampleTree(logs=1, seconds=24, size=(540, 960))  # 28 s with the short scenes, 2 labelled sweeps a second
NOISE = 12.0  # of a source picture, which is made smaller
MEMORY, TINY = ["preset=memory", "num_threads=1"], ["preset=tiny"]
STILL = [f"data.augmentation.{name}=0" for name in ("brightness", "contrast", "saturation", "flip", "point_dropout")]


def add_noise(root: Path) -> None:
    """Gives generated pictures, which are smooth, about as many bytes as a camera's have."""
    draw = np.random.default_rng(0)
    for path in sorted(root.rglob("*.jpg")):
        picture = cv2.imread(str(path))
        noisy = picture + draw.normal(0.0, NOISE, picture.shape[:2])[..., None]
        cv2.imwrite(str(path), np.clip(noisy, 0, 255).astype(np.uint8), [cv2.IMWRITE_JPEG_QUALITY, 95])


def prepared_cpu_s(root: Path, store: Path) -> float:
    """Returns the CPU time of building the cache of a log in this process."""
    job = whole_build("nuplan", ["train", "val"], {"preset": "memory"}, path=str(root))
    begin = time.process_time()
    build_and_publish(job, FolderStore(store), FolderTree(root), RECIPE, lambda record: None, processes=0, threads=1)
    return time.process_time() - begin


def loading_ms(still: RunData, augmented: RunData, rounds: int) -> dict[str, float]:
    """Returns the CPU milliseconds of a warm sample, by what is done with it."""
    (cache,) = still.caches.values()
    data = still.run.config.data
    place, points = np.empty((*data.image_size, 3), np.uint8), np.empty((1 << 17, 5), np.float32)
    numbers = [int(number) for number in cache.rows("train").sample]

    def decode() -> int:
        for number in numbers:
            fields = cache.fields(number)
            for channel in data.cameras:
                picture = stored_picture(fields[f"{PICTURE}{channel}"])
                assert isinstance(picture, JpegPicture)
                picture.write_into(place)
            sweep = unpack_arrays(fields[POINTS], compressed=False)[POINTS]
            points[: len(sweep)] = sweep
        return len(numbers)

    def loads(found: RunData) -> Callable[[], int]:
        config = found.run.config
        loader = Loader(found.samples, RECIPE.collate, batch_size=config.batch_size, seed=config.seed, threads=1)
        return lambda: sum(len(batch["images"]) for batch in loader.batches(0))

    ways = {"decode only": decode, "loaded": loads(still), "augmented": loads(augmented)}
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            begin = time.process_time()
            count = way()
            if number:  # the first round makes the memory
                found[name].append(1000 * (time.process_time() - begin) / count)
    return {name: statistics.median(values) for name, values in found.items()}


def step_cpu_s(data: RunData, steps: int = 7) -> float:
    """Returns the median CPU time of a step."""
    facts = computed_facts(RECIPE, data.run.config, data.caches)
    batch = first_batch(data.run, data.samples)
    trial = step_trial(RECIPE, data.run.config, facts, batch, torch.device("cpu"), Variant("fp32", False))
    trial()
    found = []
    for _ in range(steps):
        begin = time.process_time()
        trial()
        found.append(time.process_time() - begin)
    return statistics.median(found)


def main() -> None:
    """Measures and prints a line a figure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "log"
        write_example_tree(root, LOG)
        add_noise(root)
        print(f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")
        print(f"preparing: {prepared_cpu_s(root, Path(folder) / 'store'):.1f} s (goal: 10 s)", flush=True)
        run = ["recipe=nuplan", f"data_root={root}", f"logdir={folder}"]
        still, memory, tiny = (data_of("bench", [*run, *one], [], {}) for one in ([*MEMORY, *STILL], MEMORY, TINY))
        (cache,) = still.caches.values()
        fields = cache.fields(0)
        sizes = [len(fields[name]) / 1000 for name in fields if name.startswith(PICTURE)]
        print(f"pictures of {statistics.mean(sizes):.0f} kB, points of {len(fields[POINTS]) / 1000:.0f} kB")
        found = loading_ms(still, memory, options.rounds)
        for name, milliseconds in found.items():
            print(f"{name}: {milliseconds:.2f} ms a sample, {found['decode only'] / milliseconds:.2f} of the bound")
        print("(goal: 0.85 of the bound where no picture is changed)", flush=True)
        print(f"step: {step_cpu_s(tiny):.2f} s of {tiny.run.config.batch_size} samples (goal: 1 s)")


if __name__ == "__main__":
    main()
