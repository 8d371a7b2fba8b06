"""How a recipe names the files of a checkpoint, and what a local run's folder shows of them."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from lead_trainer.contract.checked_parts import checked_parts
from lead_trainer.contract.step import ConfigT

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+=-]{0,199}")
PARTS = ("model", "optimizer", "scheduler", "scaler", "ema", "clipper")


@dataclass(frozen=True)
class CheckpointAt:
    """Which checkpoint is named."""

    epoch: int  # the epoch it is of, from 0: the one just finished, or the one under way
    step: int  # optimizer steps done
    step_in_epoch: int = 0  # 0: at the epoch's end


def names_by_epoch(config: Any, at: CheckpointAt) -> Mapping[str, str]:
    """Returns `model_0000.pth` and so on by part, the epoch counted from 0."""
    names = {part: f"{part}_{at.epoch:04d}.pth" for part in PARTS}
    return {**names, "skipped": f"gradient_steps_skipped_{at.epoch:04d}.txt"}


def name_fault(name: Any) -> str:
    """Returns what is wrong with the name of a file in a run's folder or store, empty for a plain one."""
    if not isinstance(name, str):
        return f"is a {type(name).__name__}, expected a text"
    if not _NAME.fullmatch(name):
        return (
            "is no plain file name: expected letters, digits and any of ._+=- , at most 200 of them, and no dot at the "
            "beginning"
        )
    return ""


@checked_parts
@dataclass(frozen=True, kw_only=True)
class Files(Generic[ConfigT]):
    """Names of files; by epoch unless a recipe defines others."""

    #: File names by part (model, optimizer or, of several, optimizer_<name>, scheduler, scaler, skipped, ema, clipper);
    #: no two may be the same.
    names: Callable[[ConfigT, CheckpointAt], Mapping[str, str]] = names_by_epoch
    #: The names under which a local run's folder shows weights (config, epoch from 0, newest?, best?), instead of all
    #: files of the newest checkpoint under their own.
    shown: Callable[[ConfigT, int, bool, bool], Sequence[str]] | None = None
    #: A prefix that distinguishes runs that share a folder and a seed; shown names then begin `{kind}_seed{seed}_`.
    run_kind: Callable[[ConfigT], str] | None = None
    #: Epochs, counted from 1, whose model file stays in a local run's folder, which then shows the newest checkpoint
    #: alone; without it the folder shows every checkpoint that retention keeps.
    kept_epochs: Callable[[ConfigT], Sequence[int]] | None = None
