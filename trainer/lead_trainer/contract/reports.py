"""What a recipe reports about a run: tags, pictures, advice, and the usual next command."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic

import numpy as np
import numpy.typing as npt

from lead_trainer.contract.checked_parts import BadPart, checked_parts, type_fault
from lead_trainer.contract.samples import Batch
from lead_trainer.contract.step import ConfigT

VALIDATION = "val/"  # begins the tag of every validation metric
_RULE_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")

Picture = npt.NDArray[np.uint8]  # (H, W, 3), RGB


def picture_fault(picture: Any) -> str:
    """Returns what a value is that is neither a picture (H, W, 3) nor a clip (T, H, W, 3) of uint8, empty for one."""
    if not isinstance(picture, np.ndarray):
        return f"a {type(picture).__name__}"
    fits = picture.dtype == np.uint8 and picture.ndim in (3, 4) and picture.shape[-1] == 3 and picture.size
    return "" if fits else f"{picture.dtype} {picture.shape}"


@dataclass(frozen=True)
class WatchRule:
    """One piece of advice about a run."""

    name: str  # in kebab-case
    check: Callable[[Sequence[Mapping[str, float]]], str | None]  # means by tag of each epoch -> the advice, or None

    def __post_init__(self) -> None:
        """Raises BadPart for a name that no record takes, and a check that is no function of one argument."""
        if not (isinstance(self.name, str) and len(self.name) <= 40 and _RULE_NAME.fullmatch(self.name)):
            raise BadPart(f"WatchRule: found the name {self.name!r}, expected up to 40 lower-case letters in parts "
                          "joined by dashes")  # fmt: skip
        if fault := type_fault(self.check, Callable[[Any], Any]):
            raise BadPart(f"WatchRule {self.name!r}: check: {fault}")


@dataclass(frozen=True)
class WandbKeys:
    """A recipe's W&B settings; an empty text means not set."""

    on: bool = False
    project: str = ""
    id: str = ""
    resume: str = "never"
    name: str = ""
    notes: str = ""


@dataclass(frozen=True)
class RunFigures:
    """What a step of a run was beside its losses; for scalars of the recipe's own."""

    loss: float
    epoch: int
    step: int
    steps: int  # of the whole stage
    skipped_steps: int
    loss_scale: float
    gradient_norm: float  # before clipping
    rates: Sequence[float]  # learning rate of each parameter group
    processes: int
    parameters: int  # that learn
    samples: int
    batches: int  # of an epoch
    rank_batch: int
    loader_threads: int
    gpu_memory_gib: float
    load_s: float | None  # seconds a sample


@checked_parts
@dataclass(frozen=True, kw_only=True)
class Tags:
    """Where the event file and W&B show the scalars of a step: what a tag begins with."""

    #: Of unscaled losses, `StepOutput.parts`; default `train/`.
    parts: str = "train/"
    #: Of what `loss` sums, `StepOutput.scaled`; default `train/scaled/`.
    scaled: str = "train/scaled/"
    #: Of `StepOutput.metrics`; default `train/`.
    metrics: str = "train/"
    #: Of the means of an epoch; default `epoch/`.
    epoch: str = "epoch/"
    #: The whole tag of training's picture; default `train/picture`.
    picture: str = "train/picture"


def own_figures(config: Any, figures: RunFigures, batch: Batch) -> Mapping[str, float]:
    """Returns loss, gradient norm and learning rates under `train/`."""
    return {
        "train/loss": figures.loss,
        "train/gradient_norm": figures.gradient_norm,
        **{f"train/lr_{group}": rate for group, rate in enumerate(figures.rates)},
        "train/steps_skipped": figures.skipped_steps,
        "train/loss_scale": figures.loss_scale,
    }


@checked_parts
@dataclass(frozen=True, kw_only=True)
class Reports(Generic[ConfigT]):
    """What people see of a run, besides what the engine reports of every one."""

    #: What the tags of losses and metrics begin with.
    tags: Tags = Tags()
    #: Scalars of a step by their whole tags, besides losses and metrics; those that are not finite are left out.
    figures: Callable[[ConfigT, RunFigures, Batch], Mapping[str, float]] = own_figures
    #: An (H, W, 3) RGB picture of a training batch's first sample beside its truth (config, batch, outputs), or None.
    picture: Callable[[ConfigT, Batch, Any], Picture | None] | None = None
    #: Several pictures of a training batch, or clips (T, H, W, 3), by their whole tags (config, batch, outputs).
    pictures: Callable[[ConfigT, Batch, Any], Mapping[str, Picture]] | None = None
    #: Watch rules besides the engine's, asked after every epoch.
    watch_rules: Callable[[ConfigT], Sequence[WatchRule]] = lambda config: ()
    #: A sentence for each value that is allowed and seldom meant, before a local run begins.
    warnings: Callable[[ConfigT], Sequence[str]] = lambda config: ()
    #: What the console's block calls the part of the training that an epoch, from 0, belongs to (config, epoch).
    stage: Callable[[ConfigT, int], str] | None = None
    #: The command for a run's weights, after what it is for (config, weights, logdir, the run's `recipe` and `preset`):
    #: it can be pasted as it is, with every key of the run that the next one needs and does not take over.
    next_command: Callable[[ConfigT, Path, Path, Mapping[str, str]], str] | None = None
    #: What the recipe's origin states of speed and memory, by variant: `half precision`, `gradient checkpointing`, or
    #: what is not measured here, such as `4 GPUs`. `lead bench model` prints it beside what it measured.
    stated_speed: Mapping[str, str] = field(default_factory=dict)
    #: Keys of a sample in which infinity means that nothing was measured; `lead inspect nan` names it in all others.
    unmeasured: frozenset[str] = frozenset()
    #: The W&B settings in the config.
    wandb: Callable[[ConfigT], WandbKeys] = lambda config: WandbKeys()
