"""`lead completion`: what a shell needs to complete the commands and options of `lead`.

    source <(lead completion bash)                                    # in ~/.bashrc, or ~/.zshrc with zsh
    lead completion fish > ~/.config/fish/completions/lead.fish

Keys of a recipe (`key=value`) are not completed: `lead config` lists them.
"""

import argparse
from pathlib import Path

import shtab

from lead_trainer.command_line import parser


def print_completion(shell: str) -> None:
    """Prints the completion script of a shell; files and folders are completed where a command takes one."""
    root = parser()
    _prepare(root)
    print(shtab.complete(root, shell=shell))


def _prepare(command: argparse.ArgumentParser) -> None:
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            action.help = None  # of `lead --help`, whose text lists the commands itself
            for below in action.choices.values():
                _prepare(below)
        elif action.type is Path:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
