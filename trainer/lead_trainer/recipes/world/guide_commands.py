"""The training guide's scripts: `prepare_dataset`, `train`, `find_lr`, with their flags.

Each is a command of `lead` with `recipe=world`. A `--config configs/…` that is not in this folder is the file of that
name that comes with the recipe. `train` ends with the guide's "After Training": it measures the newest weights and
writes report.json, report.md and pictures beside them.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from lead_trainer.errors import TrainerError, exit_code_of
from lead_trainer.terminal_text import printable

OWN = Path(__file__).parent.resolve()
USAGE = "usage: python -m lead_trainer.recipes.world {prepare_dataset|train|find_lr} …"
HELP = f"""{USAGE}

prepare_dataset  --dataset nuscenes|carla --data-root FOLDER [--output FOLDER] …; prepare_dataset --help lists all flags
train            --config configs/training/base.yaml --data-root FOLDER --perceptual-weights vgg16.pth [--use-wandb] …;
                 any key of lead config recipe=world as --key value, files named in the guide come with the recipe:
                 {", ".join(sorted(str(file.relative_to(OWN)) for file in (OWN / "configs").rglob("*.yaml")))}
find_lr          the keys of train, with --min-lr, --max-lr and --steps"""


def main(arguments: Sequence[str]) -> int:
    """Runs a script of the guide; returns its exit code."""
    command, *words = arguments or [""]
    if command in ("-h", "--help"):
        print(HELP)
        return 0
    if command not in COMMANDS:
        print(f"{USAGE}\nerror: found {command!r}", file=sys.stderr)
        return 64
    return COMMANDS[command](with_shipped_configs(words))


def train(words: Sequence[str]) -> int:
    """Trains or resumes as `lead train recipe=world`, then measures the newest weights on rank 0."""
    from lead_trainer.cli import main as lead
    from lead_trainer.local.config_sources import with_flags
    from lead_trainer.local.run import local_run

    given = ["recipe=world", *words]
    if (code := lead(["train", *given])) or os.environ.get("RANK", "0") != "0":
        return code
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", action="append", default=[], type=Path)
    options, keys = parser.parse_known_args(with_flags(given))
    weights = sorted(local_run(keys, options.config, os.environ).logdir.glob("model_*.pth"))
    return lead(["evaluate", str(weights[-1])]) if weights else code


def find_lr(words: Sequence[str]) -> int:
    """Sweeps the learning rate as `lead lr-find recipe=world`."""
    from lead_trainer.cli import main as lead

    return lead(["lr-find", "recipe=world", *words])


def prepare_dataset(words: Sequence[str]) -> int:
    """Writes the processed layout of a raw tree."""
    from lead_trainer.recipes.world.prepare_dataset import add_arguments, run

    parser = argparse.ArgumentParser(prog="python -m lead_trainer.recipes.world prepare_dataset")
    add_arguments(parser)
    try:
        print(run(parser.parse_args(words)))
    except TrainerError as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        return exit_code_of(error)
    return 0


def with_shipped_configs(words: Sequence[str]) -> list[str]:
    """Returns the words with a shipped file in the place of each `--config` that names none here."""
    return [
        shipped(word) if number and words[number - 1] == "--config"
        else f"--config={shipped(word.removeprefix('--config='))}" if word.startswith("--config=")
        else word
        for number, word in enumerate(words)
    ]  # fmt: skip


def shipped(name: str) -> str:
    """Returns the path of a config file: itself, or the recipe's own where there is none here."""
    own = OWN / name
    inside = own.resolve().is_relative_to(OWN / "configs")
    return str(own) if inside and own.is_file() and not Path(name).exists() else name


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "prepare_dataset": prepare_dataset,
    "train": train,
    "find_lr": find_lr,
}
