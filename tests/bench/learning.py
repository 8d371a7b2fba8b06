"""Shows that the recipe `lead` learns: preset `demo` on eight generated routes, from pretraining to a plan.

Run as `python tests/bench/learning.py`; 3,600 steps, on as many idle cores as help. It trains by `lead train`,
as a user does, prints the curves, and compares on every frame of the routes it trained on and of routes it never saw.
Exits with 1 unless waypoints came 5 times closer, BEV classes reached 0.8 mIoU, and unseen routes beat constant speed.
"""

import argparse
import os
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lead_protocol.store.folder import FolderStore
from lead_trainer.commands.train import train_locally
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.engine.checkpoints.resume import load_tensors
from lead_trainer.example_worlds.lead.tree import write_example_tree
from lead_trainer.local.job import build_cache
from lead_trainer.local.run import local_run
from lead_trainer.recipes.lead.dataset import LeadSamples
from lead_trainer.recipes.lead.recipe import RECIPE, on_device

ROUTES, UNSEEN_ROUTES, FRAMES = 8, 8, 19  # three frames a route have the past and future that posttraining wants
PRETRAIN_EPOCHS, POSTTRAIN_EPOCHS = 3, 60
HURRIED = [
    # Learning by heart: the views that are scored, and no dropout.
    "batch_size=4", "use_color_aug=false", "use_sensor_perburtation=false", "visualize_training=false",
    "embd_pdrop=0.0", "resid_pdrop=0.0", "attn_pdrop=0.0", "radar_dropout=0.0",
    # All of the BEV map passes through the last stage's cells. The preset's are 16 m wide, LEAD's 8 m with 512
    # channels, these 4 m with 96; it is drawn from cells of 1 m as in LEAD. Fewer metres and pixels pay for them.
    "pixels_per_meter=8", "bev_down_sample_factor=8", "min_x_meter=-8", "max_x_meter=24", "min_y_meter=-16",
    "max_y_meter=16", "image_height=64", "image_width=192",
]  # fmt: skip
# The box heatmap's loss begins a hundred times above the others, and AdamW's amsgrad never forgets its gradients: some
# steps at a low rate bring it down. Posttraining has a new optimizer and can take the high rate that BEV needs.
PRETRAIN_KEYS = ["lr=0.001"]
POSTTRAIN_KEYS = ["lr=0.006", "use_cosine_annealing_with_restarts=false", "lr_warmup_steps=30",
                  "carla_num_samples=240", "use_planning_decoder=true"]  # fmt: skip
SAMPLE_PERIOD_S = 0.25  # between waypoints: 5 simulator steps of 0.05 s
WANTED_GAIN, WANTED_MIOU = 5.0, 0.8
WIDTH = 60
THREADS = 4  # more are no help to convolutions of this size


@dataclass(frozen=True)
class Score:
    """How good a model is on all frames of a dataset."""

    waypoints_ade: float  # metres
    constant_speed_ade: float  # metres, of going straight on at the present speed
    bev_iou: tuple[float, ...]  # of the classes that occur in truth or prediction

    @property
    def bev_miou(self) -> float:
        """Mean over the classes that occur."""
        return float(np.mean(self.bev_iou))


def main() -> int:
    """Trains, scores, prints; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="keep data and runs here (default: a temporary folder)")
    parser.add_argument("--epochs", type=int, nargs=2, default=(PRETRAIN_EPOCHS, POSTTRAIN_EPOCHS))
    parser.add_argument("--set", nargs="*", default=[], metavar="key=value", help="more keys of both stages")
    options = parser.parse_args()
    torch.set_num_threads(min(THREADS, len(os.sched_getaffinity(0))))
    with tempfile.TemporaryDirectory(prefix="lead-learning-") as temporary:
        return learn(options.folder or Path(temporary), options.epochs, options.set)


def learn(folder: Path, epochs: tuple[int, int], words: list[str]) -> int:
    """Trains both stages in `folder` and returns 0 if the promises hold."""
    seen, unseen = folder / "seen", folder / "unseen"
    write_example_tree(seen, routes=ROUTES, frames=FRAMES, seed=0)
    write_example_tree(unseen, routes=UNSEEN_ROUTES, frames=FRAMES, seed=1)
    begin = time.monotonic()
    shared = ["preset=demo", f"carla_root={seen}", *HURRIED]
    first = [*shared, *PRETRAIN_KEYS, *words, f"logdir={folder / 'pretrain'}", f"epochs={epochs[0]}"]
    train_locally(first, [], {})
    pretrained = folder / "pretrain" / f"model_{epochs[0] - 1:04d}.pth"
    second = [*shared, *POSTTRAIN_KEYS, *words, f"logdir={folder / 'posttrain'}", f"epochs={epochs[1]}"]
    second += [f"load_file={pretrained}"]
    before = score(second, seen, pretrained)
    train_locally(second, [], {})
    minutes = (time.monotonic() - begin) / 60
    final = folder / "posttrain" / f"model_{epochs[1] - 1:04d}.pth"
    after, elsewhere = score(second, seen, final), score(second, unseen, final)
    console = Console(width=None if sys.stdout.isatty() else 120)
    for stage in ("pretrain", "posttrain"):
        print_curves(console, folder / stage)
    return report(console, before, after, elsewhere, minutes)


@torch.no_grad()
def score(words: list[str], root: Path, weights: Path) -> Score:
    """Returns how good `weights` are on every frame below `root`, recorded views only."""
    run = local_run(words, [], {})
    run = replace(run, config=run.config.model_copy(update={"carla_root": str(root)}))
    store = FolderStore(root / "cache")
    samples = LeadSamples(run.config, CacheReader(store, build_cache(run, store)))
    torch.manual_seed(0)
    model = RECIPE.model(run.config, {})
    RECIPE.load_initial_weights(model, run.config, {}, load_tensors(weights))
    model.eval()
    classes = run.config.num_bev_semantic_classes
    confusion = torch.zeros(classes, classes, dtype=torch.int64)
    ours, straight = [], []
    for index in range(len(samples)):
        batch = on_device(RECIPE.collate([samples.sample(index, perturbed=False)]), run.config)
        predictions = model(batch)
        truth, guess = batch["bev_semantic"].long().flatten(), predictions.bev_semantic.argmax(dim=1).flatten()
        confusion += torch.bincount(truth * classes + guess, minlength=classes**2).view(classes, classes)
        path = batch["future_waypoints"][0]
        steps = torch.arange(1, len(path) + 1) * SAMPLE_PERIOD_S * batch["speed"]
        ours.append((predictions.plan.future_waypoints[0] - path).norm(dim=-1).mean().item())
        straight.append((torch.stack((steps, torch.zeros_like(steps)), dim=-1) - path).norm(dim=-1).mean().item())
    hits = confusion.diagonal()
    union = confusion.sum(dim=0) + confusion.sum(dim=1) - hits
    iou = (hits[union > 0] / union[union > 0]).tolist()
    return Score(float(np.mean(ours)), float(np.mean(straight)), tuple(iou))


def print_curves(console: Console, logdir: Path) -> None:
    """Prints the epoch means of a stage as bars, one line a tag."""
    events = EventAccumulator(str(logdir), size_guidance={"scalars": 0}).Reload()
    table = Table("mean of an epoch", "first", "last", "course", title=logdir.name)
    for tag in sorted(tag for tag in events.Tags()["scalars"] if tag.startswith("epoch/")):
        values = np.array([event.value for event in events.Scalars(tag)])
        table.add_row(tag.removeprefix("epoch/"), f"{values[0]:.3g}", f"{values[-1]:.3g}", bars(values))
    console.print(table)


def bars(values: np.ndarray) -> str:
    """Returns a line of blocks, one a value, the highest full."""
    picked = values[np.linspace(0, len(values) - 1, min(WIDTH, len(values))).astype(int)]
    low, high = float(picked.min()), float(picked.max())
    return "".join("▁▂▃▄▅▆▇█"[int(7 * (value - low) / max(high - low, 1e-12))] for value in picked)


def report(console: Console, before: Score, after: Score, elsewhere: Score, minutes: float) -> int:
    """Prints the three promises and returns 1 if one is broken."""
    gain = before.waypoints_ade / after.waypoints_ade
    unseen, straight = elsewhere.waypoints_ade, elsewhere.constant_speed_ade
    lines = [
        ("waypoint ADE on the training routes", f"{before.waypoints_ade:.3f} m → {after.waypoints_ade:.3f} m",
         f"{gain:.1f} times, expected {WANTED_GAIN:.0f}", gain >= WANTED_GAIN),
        ("BEV mIoU on the training routes", f"{before.bev_miou:.3f} → {after.bev_miou:.3f}",
         f"expected {WANTED_MIOU}", after.bev_miou >= WANTED_MIOU),
        ("waypoint ADE on unseen routes", f"{unseen:.3f} m", f"constant speed: {straight:.3f} m", unseen < straight),
    ]  # fmt: skip
    table = Table("what", "found", "expected", "", title=f"after {minutes:.1f} minutes of training")
    for what, found, expected, good in lines:
        table.add_row(what, found, expected, "ok" if good else "[red]off[/]")
    console.print(table)
    console.print("IoU of the BEV classes that occur:", " ".join(f"{value:.2f}" for value in after.bev_iou))
    return 0 if all(good for *_, good in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
