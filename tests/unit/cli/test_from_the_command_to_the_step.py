"""`lead train` reaches the optimizer's step in few calls, and every command's function takes the command's options."""

import argparse
import signal
import traceback
from inspect import Parameter, signature
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import torch

from lead_testing.toy_runs import toy_recipe_installed
from lead_trainer.cli import main
from lead_trainer.command_line import FUNCTIONS, parser

MOST_FRAMES, MOST_FILES = 8, 5  # GradScaler.step, the last of them, is torch's


def test_the_step_is_eight_calls_and_five_files_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stacks, step = [], torch.amp.GradScaler.step

    def noted(scaler: Any, optimizer: Any, *given: Any, **named: Any) -> Any:
        stacks.append(traceback.extract_stack())
        return step(scaler, optimizer, *given, **named)

    monkeypatch.setattr(torch.amp.GradScaler, "step", noted)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    with toy_recipe_installed(tmp_path):
        assert main(["train", "recipe=toy", f"logdir={tmp_path / 'run'}", "epochs=1"]) == 0
    for number, handler in handlers.items():
        signal.signal(number, handler)
    names = [frame.name for frame in stacks[0]]
    way = stacks[0][names.index("main", len(names) - names[::-1].index("main") - 1) :]
    files = [frame.filename for frame in way if "lead_trainer" in frame.filename]
    assert len(way) <= MOST_FRAMES, [frame.name for frame in way]
    assert len(set(files)) <= MOST_FILES, files


@pytest.mark.parametrize("command", sorted(FUNCTIONS))
def test_each_command_gives_its_function_what_it_takes(command: str) -> None:
    (commands,) = [each for each in parser()._actions if isinstance(each, argparse._SubParsersAction)]
    options = {action.dest for action in commands.choices[command]._actions} | {"environ"}
    taken = signature(resolve_name(f"lead_trainer.commands.{FUNCTIONS[command]}")).parameters
    required = {name for name, each in taken.items() if each.default is Parameter.empty}
    assert required <= options
    assert options - {"help", "what", "environ"} <= set(taken), "an option that nothing reads"
