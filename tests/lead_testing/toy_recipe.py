"""A recipe as small as one can be: a linear model on generated numbers; what the engine's tests train.

It has what a checkpoint could lose: batch-norm buffers, dropout, an optimizer with momenta, a restarting schedule.
`install_toy_recipe` makes it an entry point, as a package of somebody else's would. The environment can ask one rank to
send itself a signal in its n-th step: LEAD_TOY_SIGNAL=KILL:7:1 is SIGKILL in step call 7 of rank 1, TERM:v2:0 is
SIGTERM in the second batch that rank 0 validates.
"""

import math
import os
import signal
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.checkpoint import checkpoint

from lead_trainer.contract.files import Files
from lead_trainer.contract.keys import Keys
from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.samples import Batch, Caches, Sample, Samples
from lead_trainer.contract.step import Facts, Position, StepContext, StepOutput
from lead_trainer.contract.training_keys import TrainingKeys
from lead_trainer.contract.validation import Evaluation, Validation

FEATURES = 6


class ToyConfig(TrainingKeys):
    """The keys of the toy recipe."""

    epochs: int = 2
    batch_size: int = 8
    precision: str = "fp32"
    deterministic: bool = True
    num_threads: int = 2
    grad_clip_norm: float = 1.0
    grad_history_length: int = 20
    samples: int = 48
    lr: float = 0.05
    dropout: float = 0.2
    sample_norm: bool = False  # normalise each sample by itself: then a step does not depend on the ranks' shares
    poisoned_sample: int = -1  # its loss is not a number
    spoiled_input: bool = False  # the poisoned sample is so in its input, not in its label
    rows_in_memory: int = 0  # a larger micro-batch does not fit; 0: everything fits
    validation_samples: int = 0
    load_file: str = ""
    stuck_loading: bool = False  # no sample ever comes


@dataclass(frozen=True)
class ToySamples(Samples):
    """Points of a noisy plane; each a pure function of (seed, index, epoch)."""

    config: ToyConfig
    first: int = 0
    count: int = 0
    cache: Any = None  # of which a record is read a sample, and not looked at

    def __len__(self) -> int:
        return self.count or self.config.samples

    def name(self, index: int) -> str:
        return f"point-{index}"

    def epoch_draw(self, epoch: int) -> npt.NDArray[np.int64]:
        return np.arange(self.first, self.first + len(self), dtype=np.int64)

    def load(self, index: int, epoch: int) -> Sample:
        if self.config.stuck_loading:
            threading.Event().wait()
        if self.cache is not None:
            self.cache.fields(index)
        x = np.random.default_rng([index, 7]).normal(size=FEATURES).astype(np.float32)
        noise = np.random.default_rng([self.config.seed, index, epoch]).normal(scale=0.01)
        y = np.float32(x.sum() + noise)
        if index == self.config.poisoned_sample:
            x, y = (x * np.float32("nan"), y) if self.config.spoiled_input else (x, np.float32("nan"))
        return {"x": x, "y": y}


class ToyModel(torch.nn.Module):
    """Linear, a norm over the batch or over each sample, dropout, linear."""

    def __init__(self, dropout: float, sample_norm: bool = False) -> None:
        super().__init__()
        norm = torch.nn.LayerNorm(8) if sample_norm else torch.nn.BatchNorm1d(8)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(FEATURES, 8), norm, torch.nn.Dropout(dropout), torch.nn.Linear(8, 1)
        )

        self.checkpoints = False

    def forward(self, x_BF: torch.Tensor) -> torch.Tensor:
        y_B1: torch.Tensor = (
            checkpoint(self.layers, x_BF, use_reentrant=False) if self.checkpoints else self.layers(x_BF)
        )
        return y_B1.squeeze(1)


class Calls:
    """How often this process was asked for a step, and for a validation batch."""

    steps = evaluations = 0


def samples(config: ToyConfig, caches: Caches) -> ToySamples:
    return ToySamples(config, cache=next(iter(caches.values()), None))


def validation_samples(config: ToyConfig, caches: Caches) -> ToySamples | None:
    count = config.validation_samples
    return ToySamples(config, first=10_000, count=count) if count else None


def evaluate(model: torch.nn.Module, batch: Batch, context: StepContext[ToyConfig]) -> Evaluation:
    Calls.evaluations += 1
    signal_myself(f"v{Calls.evaluations}")
    errors_B = (model(batch["x"]) - batch["y"]).double()
    return Evaluation({"loss": (errors_B.square().sum(), len(errors_B)), "bias": (errors_B.sum(), len(errors_B))})


def summary(config: ToyConfig, means: Mapping[str, float]) -> Mapping[str, float]:
    return {**means, "rmse": math.sqrt(means["loss"])}


def model(config: ToyConfig, facts: Facts) -> torch.nn.Module:
    return ToyModel(config.dropout, config.sample_norm)


def save_memory(model: torch.nn.Module) -> None:
    assert isinstance(model, ToyModel)
    model.checkpoints = True


def optimizer(model: torch.nn.Module, config: ToyConfig) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=config.lr, amsgrad=True)


def lr_factor(config: ToyConfig, at: Position) -> float:
    steps = at.epoch_steps[0]
    return 0.5 * (1 + math.cos(math.pi * (at.step % steps) / steps))


def step(model: torch.nn.Module, batch: Batch, context: StepContext[ToyConfig]) -> StepOutput:
    Calls.steps += 1
    signal_myself(str(Calls.steps))
    if 0 < context.config.rows_in_memory < len(batch["x"]):
        raise torch.OutOfMemoryError(f"CUDA out of memory: {len(batch['x'])} rows")
    loss = torch.nn.functional.mse_loss(model(batch["x"]), batch["y"])
    return StepOutput(loss=loss, parts={"loss_plane": loss.detach()})


RECIPE = Recipe[ToyConfig](
    name="toy",
    config_model=ToyConfig,
    samples=samples,
    model=model,
    save_memory=save_memory,
    optimizer=optimizer,
    lr_factor=lr_factor,
    step=step,
    validation=Validation(samples=validation_samples, evaluate=evaluate, summary=summary),
    keys=Keys(presets={"short": {"samples": 16}}),
    files=Files(kept_epochs=lambda config: ()),
)


def signal_myself(call: str) -> None:
    """Sends this process the signal that LEAD_TOY_SIGNAL asks for, if this is the call and the rank it names."""
    wish = os.environ.get("LEAD_TOY_SIGNAL", "")
    if wish:
        name, wished, rank = wish.split(":")
        if call == wished and os.environ.get("RANK", "0") == rank:
            os.kill(os.getpid(), signal.Signals[f"SIG{name}"])


def install_toy_recipe(folder: Path) -> Path:
    """Writes the metadata of a package that offers the toy recipe; `folder` then belongs on the module search path."""
    info = folder / "lead_toy-1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lead-toy\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[lead.recipes]\ntoy = lead_testing.toy_recipe:RECIPE\n")
    return folder
