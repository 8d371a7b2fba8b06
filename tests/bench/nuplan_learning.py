"""Shows that the recipe `nuplan` learns, by `lead train` on a generated town and `lead evaluate` on logs it never saw.

Run as `python tests/bench/nuplan_learning.py [--epochs 12] [--logdir DIR]`: the preset `tiny` on one thread of a CPU.
Exits with 1 unless on the validation's logs

- detection mAP is better than no boxes (0) and by MARGIN_MAP,
- mIoU of map layers is better than taking each cell for what most cells of the training logs are,
- ADE is better than that of agents that keep their velocity.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import torch

from lead_trainer.commands.evaluate import evaluate_checkpoint
from lead_trainer.commands.train import train_locally

MARGIN_MAP = 0.05
ARGUMENTS = ["recipe=nuplan", "preset=tiny", "validate_every_epochs=0", "every_epochs=0"]


def main() -> int:
    """Trains, measures, prints, and returns 1 where a bar is missed."""
    from lead_trainer.example_worlds.nuplan.tree import ExampleTree, write_example_tree

    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--logdir", type=Path, help="keeps the run, with its report and pictures")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        root, logdir = Path(folder) / "town", options.logdir or Path(folder) / "run"
        write_example_tree(root, ExampleTree(seed=1))
        begin = time.process_time()
        train_locally([*ARGUMENTS, f"epochs={options.epochs}", f"data_root={root}", f"logdir={logdir}"], [], os.environ)
        cpu_s = time.process_time() - begin
        (weights,) = logdir.glob("model_*.pth")
        found = evaluate_checkpoint(weights, [], "val", None, os.environ)
    bars = {
        "mAP": (found["mAP"], MARGIN_MAP, found["mAP"] >= MARGIN_MAP),
        "mIoU": (found["mIoU"], found["mIoU_majority"], found["mIoU"] > found["mIoU_majority"]),
        "ADE": (found["ADE"], found["ADE_constant_velocity"], found["ADE"] < found["ADE_constant_velocity"]),
    }
    print(f"{cpu_s:.0f} s of CPU, {options.epochs} epochs")
    for name, (value, bar, good) in bars.items():
        print(f"{name} {value:.3f}, baseline {bar:.3f}: {'better' if good else 'NOT better'}")
    return 0 if all(good for _, _, good in bars.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
