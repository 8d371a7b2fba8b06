"""Shows that every kind of student of the recipe `distill` learns, by the commands a user types.

Run as `python tests/bench/distill_learning.py`; each line of the table is `lead train` on one thread of a CPU and then
`lead evaluate` on the clips it trained on, beside constant velocity along the heading, which is going straight on.
Agents of benchmarks have a velocity of their own too; of both the nearer is shown. Exits with 1 if a student is not
nearer, or the preset `tiny` as it is takes more than five minutes of CPU.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from lead_testing.forecasting_trees import write_argoverse2_tree, write_nuscenes_tree
from lead_trainer.commands.evaluate import evaluate_checkpoint
from lead_trainer.commands.train import train_locally
from lead_trainer.example_worlds.distill.tree import write_example_tree
from lead_trainer.recipes.distill.benchmarks.challenges import CONSTANT_VELOCITY, ONWARD
from lead_trainer.recipes.distill.benchmarks.measure import MODEL

CLIPS, VALIDATION_CLIPS = 32, 8  # as `lead example-data recipe=distill` writes
WANTED_CPU_S = 300.0
# The guide's presets with the smallest student: their rates are for steps by the ten thousand, so the rate is `tiny`'s.
SMALL = ["model_size=tiny", "resolution=32", "batch_size=4", "lr=1e-3", "grad_clip=1.0", "warmup_epochs=0",
         "epochs=60", "patience=0", "num_workers=1"]  # fmt: skip
VECTORS = ["benchmark=argoverse2", "input_type=vector"]
RASTER = ["benchmark=nuscenes", "input_type=raster", "nuscenes_version=v1.0-mini", "raster_pixels=64"]
STUDENTS: dict[str, list[str]] = {
    "tiny": ["preset=tiny"],
    "tokens": ["preset=tiny", "discrete_actions=true"],
    "direct, tiny": ["preset=tiny", "no_unicycle=true"],
    "reasoning, tiny": ["preset=tiny", "model=reasoning"],
    "six modes": ["preset=tiny", "num_modes=6"],
    "unicycle_stable": ["preset=unicycle_stable", *SMALL],
    "fast_110m": ["preset=fast_110m", *SMALL],
    "reasoning": ["preset=reasoning", *SMALL],
    "direct": ["preset=direct", *SMALL],
    "vectors": ["preset=tiny", *VECTORS],
    "vectors, six modes": ["preset=tiny", *VECTORS, "num_modes=6"],
    "raster": ["preset=tiny", *RASTER],
}


@dataclass(frozen=True)
class Score:
    """How near a student and constant velocity come on the training split, in metres, and the CPU time of training."""

    ade: float
    fde: float
    onward_ade: float
    onward_fde: float
    cpu_s: float

    @property
    def beats(self) -> bool:
        """Whether the student is nearer, on the way and at its end."""
        return self.ade < self.onward_ade and self.fde < self.onward_fde


def main() -> int:
    """Trains and measures every student that is asked for; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--students", nargs="*", default=list(STUDENTS), choices=list(STUDENTS))
    parser.add_argument("--folder", type=Path, help="keep data and runs here (default: a temporary folder)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="lead-distill-learning-") as temporary:
        folder = options.folder or Path(temporary)
        roots = trees(folder, options.students)
        scores = {name: score(STUDENTS[name], folder / name.replace(", ", "_"), roots) for name in options.students}
    return report(scores)


def trees(folder: Path, students: Sequence[str]) -> list[str]:
    """Writes the data that the students need and returns the keys that name it."""
    write_example_tree(folder / "clips", train=CLIPS, val=VALIDATION_CLIPS, resolution=64)
    words = {word for name in students for word in STUDENTS[name]}
    if "benchmark=argoverse2" in words and not (folder / "av2").exists():
        write_argoverse2_tree(folder / "av2", {"train": 16, "val": 4})
    if "benchmark=nuscenes" in words and not (folder / "nuscenes").exists():
        write_nuscenes_tree(folder / "nuscenes")
    return [
        f"data_root={folder / 'clips'}",
        f"argoverse2_root={folder / 'av2'}",
        f"nuscenes_root={folder / 'nuscenes'}",
    ]


def score(words: Sequence[str], logdir: Path, roots: Sequence[str]) -> Score:
    """Trains one student and measures its newest weights on the split it trained on."""
    begin = time.process_time()
    train_locally(["recipe=distill", *words, *roots, f"logdir={logdir}"], [], os.environ)
    cpu_s = time.process_time() - begin
    (weights,) = logdir.glob("*_latest.pt")
    overall = evaluate_checkpoint(weights, [], "train", logdir / "submission", os.environ).overall
    model, *onward = (overall[name].means() for name in (MODEL, ONWARD, CONSTANT_VELOCITY) if name in overall)
    nearest = min(onward, key=lambda means: means["minADE_1"])
    return Score(model["minADE_1"], model["minFDE_1"], nearest["minADE_1"], nearest["minFDE_1"], cpu_s)


def report(scores: dict[str, Score]) -> int:
    """Prints a line a student and returns 1 if a promise is broken."""
    table = Table("student", "ADE", "FDE", "ADE of constant velocity", "FDE", "CPU s", "")
    for name, found in scores.items():
        values = (found.ade, found.fde, found.onward_ade, found.onward_fde)
        table.add_row(name, *(f"{value:.2f} m" for value in values), f"{found.cpu_s:.0f}",
                      "nearer" if found.beats else "[red]not nearer[/]")  # fmt: skip
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    in_time = "tiny" not in scores or scores["tiny"].cpu_s <= WANTED_CPU_S
    return 0 if in_time and all(found.beats for found in scores.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
