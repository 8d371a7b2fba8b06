"""The smallest run of each recipe: its generated data and what to put behind a command that takes a run's arguments."""

from pathlib import Path

from lead_testing.small_world import SMALL_WORDS
from lead_trainer.contract.example_world import example_world

DATA: dict[str, dict[str, int]] = {
    "lead": {"routes": 2, "frames": 6},
    "distill": {"train": 2, "val": 2, "resolution": 32},
    "world": {"train": 2, "val": 1, "keyframes": 7, "height": 32, "width": 32},
    "nuplan": {"logs": 4, "seconds": 4, "blobs_every": 20, "height": 54, "width": 96, "cars": 2},
}
ARGUMENTS = {
    "lead": ["recipe=lead", "preset=demo", "num_threads=1", "batch_size=2", "carla_root={tree}"],
    "distill": ["recipe=distill", "preset=tiny", "resolution=32", "batch_size=2", "data_root={tree}"],
    "world": [*SMALL_WORDS, "training.batch_size=2", "loss.perceptual_weight=0", "data_root={tree}"],
    "nuplan": [
        "recipe=nuplan", "preset=tiny", 'data.cameras=["CAM_F0","CAM_B0"]', "data.image_size=[32,48]",
        "model.bev_channels=16", "model.image_channels=8", "model.pillar_channels=8", "data.stride_s=1.0",
        "data.val_share=0.5", "batch_size=2", "data_root={tree}",
    ],
}  # fmt: skip


def write_data(recipe: str, tree: Path) -> None:
    """Writes the generated data of a recipe's smallest run."""
    world = example_world(recipe)
    world.to_folder(tree, {**world.numbers, **DATA[recipe]}, lambda done, of: None)


def arguments_of(recipe: str, tree: Path, logdir: Path) -> list[str]:
    """Returns the arguments of the smallest run over such data."""
    return [*(word.format(tree=tree) for word in ARGUMENTS[recipe]), f"logdir={logdir}"]
