"""Shows that the recipe `world` learns, and that its predictions follow the driver's actions, by `lead train`.

Run as `python tests/bench/world_learning.py [--logdir DIR]`: a tree of twin scenes, alike for a second and then turning
left or right, the preset `tiny` at 32 pixels on one thread of a CPU, then the windows it trained on. Exits with 1
unless

- reconstruction and one-step prediction are better than copying the last frame and than the mean picture, by MARGIN_DB;
- in WINDOW_SHARE of the windows that hold the fork the prediction is better with the true steering than with the
  mirrored one, by STEERING_DB in the mean;
- latents differ from picture to picture, by LEAST_SPREAD;
- all this takes at most MOST_CPU_S.

What it shows of scenes that it never saw is printed, and nothing is claimed about them.
"""

import argparse
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from lead_trainer.commands.evaluate import evaluate_checkpoint
from lead_trainer.commands.train import train_locally
from lead_trainer.contract.samples import Samples, stacked
from lead_trainer.recipes.world.config import WorldConfig
from lead_trainer.recipes.world.dataset import WindowSamples
from lead_trainer.recipes.world.measure import Report
from lead_trainer.recipes.world.metrics import latent_spread, psnr
from lead_trainer.recipes.world.model import WorldModel
from lead_trainer.recipes.world.pixels import signed, unit

MARGIN_DB, STEERING_DB, WINDOW_SHARE, LEAST_SPREAD = 1.5, 0.1, 0.8, 0.5
MOST_CPU_S = 600
FORK_FRAME = 2  # the last keyframe that twins share
# At half the preset's size, 1,000 steps; 7 clips divide the 28 windows.
WORDS = ["recipe=world", "preset=tiny", "batch_size=7", "epochs=250", "data.image_size=[32,32]",
         "model.decoder.init_size=4", "validate_every_epochs=0", "every_epochs=0", "console_every_steps=0"]  # fmt: skip


@dataclass(frozen=True)
class Steering:
    """PSNR (dB) of one-step predictions of each window that holds the fork, and the spread of their latents."""

    true: torch.Tensor
    mirrored: torch.Tensor
    spread: float

    @property
    def gain_db(self) -> float:
        """The mean gain of the true steering."""
        return float((self.true - self.mirrored).mean())

    @property
    def share(self) -> float:
        """The share of windows with a gain."""
        return float((self.true > self.mirrored).float().mean())


@torch.no_grad()
def steering_of(model: WorldModel, windows: Samples) -> Steering:
    """Returns what the sign of the steering is worth."""
    samples = [windows.load(index, 0) for index in range(len(windows))]
    length = len(samples[0]["images"])
    held = [one for one in samples if one["first_frame"] <= FORK_FRAME < one["first_frame"] + length - 1]
    batch = stacked(held)
    images, actions = signed(batch["images"]), batch["actions"]
    mirrored = actions * torch.tensor([-1.0, 1.0, 1.0, 1.0])
    truth = unit(images[:, 1:])
    true, other = (model(images, each) for each in (actions, mirrored))
    found = (psnr(unit(outputs["predicted"]), truth).mean(1) for outputs in (true, other))
    return Steering(*found, spread=float(latent_spread(true["latents"])))


def main() -> int:
    """Trains, measures, prints, and returns 1 where a bar is missed."""
    from lead_trainer.example_worlds.world.tree import ExampleTree, write_example_tree

    parser = argparse.ArgumentParser()
    parser.add_argument("--logdir", type=Path, help="keeps the run, with its report and pictures")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        root, logdir = Path(folder) / "twins", options.logdir or Path(folder) / "run"
        write_example_tree(root, ExampleTree(train=4, val=2, twins=True, seed=1))
        begin = time.process_time()
        train_locally([*WORDS, f"data_root={root}", f"logdir={logdir}"], [], os.environ)
        cpu_s = time.process_time() - begin
        (weights,) = logdir.glob("model_*.pth")
        unseen, report = (measured_report(weights, split) for split in ("val", "train"))
        steering = measured_steering(weights)
    means = report.means
    bar = max(means["copy_last_psnr"], means["mean_picture_psnr"]) + MARGIN_DB
    print(f"{cpu_s:.0f} s of CPU, load {', '.join(f'{load:.1f}' for load in os.getloadavg())}")
    for title, found in (("training windows", means), ("unseen scenes, not claimed", unseen.means)):
        print(
            f"{title}: reconstruction {found['psnr']:.2f} dB, one step {found['pred_psnr']:.2f}, copy-last "
            f"{found['copy_last_psnr']:.2f}, mean picture {found['mean_picture_psnr']:.2f}"
        )
    print(f"true steering is {steering.gain_db:.2f} dB better, in {steering.share:.0%} of {len(steering.true)} windows")
    print(f"spread of latents {steering.spread:.2f}")
    good = min(means["psnr"], means["pred_psnr"]) >= bar and cpu_s <= MOST_CPU_S
    follows = steering.gain_db >= STEERING_DB and steering.share >= WINDOW_SHARE
    return 0 if good and follows and steering.spread >= LEAST_SPREAD else 1


def measured_report(weights: Path, split: str) -> Report:
    """Returns what `lead evaluate` measures."""
    report = evaluate_checkpoint(weights, [], split, None, os.environ)
    assert isinstance(report, Report)
    return report


def measured_steering(weights: Path) -> Steering:
    """Returns the steering of weights on the windows they trained on."""
    from lead_trainer.commands.evaluate import caches_of, model_with, run_of_weights

    run = run_of_weights(weights, [])
    (cache,) = caches_of(run, ("train",), os.environ).values()
    model = model_with(run, weights)
    assert isinstance(model, WorldModel) and isinstance(run.config, WorldConfig)
    return steering_of(model, WindowSamples(run.config, cache, "train", training=False))


if __name__ == "__main__":
    sys.exit(main())
