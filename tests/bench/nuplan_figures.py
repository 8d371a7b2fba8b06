"""Prints what preparing, loading and a step of the recipe `nuplan` cost, on a generated log.

Run as `python tests/bench/nuplan_figures.py [--rounds 5] [--seconds 6]`. CPU times are those of the process, so that
other programs of the machine count little; a ratio is the median of rounds that measure both sides one after the other.

- preparing: CPU of one process for the cache of a log of 28 s with six cameras, in the size of preset `memory`
- warm ÷ decoded: batches handed over by the loader, over samples decoded by as many threads into no batch
- step: CPU of one training step of preset `tiny`, forward to update, on one thread
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import torch

from lead_protocol.store.folder import FolderStore
from lead_testing.built_caches import build_and_publish, whole_build
from lead_trainer.bench.model_step import Variant, step_trial
from lead_trainer.bench.warm_cache import loader_of, measure_decode, measure_hand_over
from lead_trainer.commands.inspect_data import RunData, data_of, first_batch
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.engine.samples.data_facts import computed_facts
from lead_trainer.example_worlds.nuplan.tree import ExampleTree, write_example_tree
from lead_trainer.recipes.nuplan.recipe import RECIPE

LOG = ExampleTree(logs=1, seconds=24, size=(540, 960))  # 28 s with the short scenes, 2 labelled sweeps a second
MEMORY, TINY = ["preset=memory", "num_threads=2"], ["preset=tiny"]
GOALS = {"preparing": "10 s or less", "warm / decoded": "0.85 or more", "step": "1 s or less"}


def prepared_cpu_s(root: Path, store: Path) -> float:
    """Returns the CPU time of building the cache of a log in this process."""
    job = whole_build("nuplan", ["train", "val"], {"preset": "memory"}, path=str(root))
    begin = time.process_time()
    build_and_publish(job, FolderStore(store), FolderTree(root), RECIPE, lambda record: None, processes=0, threads=1)
    return time.process_time() - begin


def warm_over_decoded(data: RunData, seconds: float) -> tuple[float, float]:
    """Returns samples a second that are handed over in batches, and that are decoded alone."""
    loader = loader_of(RECIPE, data.run.config, data.samples, torch.device("cpu"))
    decoded = measure_decode(data.samples, data.run.config, seconds).samples_per_s
    return measure_hand_over(loader, data.run.config, seconds).samples_per_s, decoded


def step_cpu_s(data: RunData, seconds: float) -> float:
    """Returns the median CPU time of a step."""
    facts = computed_facts(RECIPE, data.run.config, data.caches)
    batch = first_batch(data.run, data.samples)
    trial = step_trial(RECIPE, data.run.config, facts, batch, torch.device("cpu"), Variant("fp32", False))
    trial()
    found, end = [], time.monotonic() + seconds
    while len(found) < 3 or time.monotonic() < end:
        begin = time.process_time()
        trial()
        found.append(time.process_time() - begin)
    return statistics.median(found)


def main() -> None:
    """Measures and prints a line a figure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "log"
        write_example_tree(root, LOG)
        print(f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")
        show("preparing", f"{prepared_cpu_s(root, Path(folder) / 'store'):.1f} s of CPU, 48 sweeps of six pictures")
        memory, tiny = (
            data_of(
                "bench", [f"data_root={root}", "recipe=nuplan", f"preset={name}", f"logdir={folder}", *more], [], {}
            )
            for name, more in (("memory", ["num_threads=2"]), ("tiny", []))
        )
        rates = [warm_over_decoded(memory, options.seconds) for _ in range(options.rounds)]
        ratios = [warm / decoded for warm, decoded in rates]
        both = ", ".join(f"{warm:.1f} / {decoded:.1f}" for warm, decoded in rates)
        show("warm / decoded", f"{statistics.median(ratios):.2f}; samples a second by round: {both}")
        show("step", f"{step_cpu_s(tiny, options.seconds):.2f} s of CPU, {tiny.run.config.batch_size} samples")


def show(name: str, found: str) -> None:
    """Prints a figure beside its goal."""
    print(f"{name}: {found} (goal: {GOALS[name]})", flush=True)


if __name__ == "__main__":
    main()
