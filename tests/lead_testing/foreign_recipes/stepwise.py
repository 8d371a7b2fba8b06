"""Counts in steps: epochs that grow, validation and files by step, its own tags, a rate for each parameter group.

A config in sections: `data.points`, `rates.head`. The model fits y = 3x - 1.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel, ConfigDict
from torch import nn

from lead_trainer.contract.files import CheckpointAt, Files
from lead_trainer.contract.keys import Keys
from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.reports import Reports, RunFigures, Tags
from lead_trainer.contract.samples import Batch, Caches, Sample, Samples
from lead_trainer.contract.step import Position, StepContext, StepOutput
from lead_trainer.contract.training_keys import TrainingKeys
from lead_trainer.contract.validation import Evaluation, Validation


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Data(Section):
    points: int = 8
    grows_by: int = 8  # points more in every epoch: a curriculum
    workers: int = 1  # says nothing of what is learned


class Rates(Section):
    body: float = 0.1
    head: float = 0.01
    least: float = 1e-3  # of both, however far their own rates have come down


class Config(TrainingKeys):
    epochs: int = 3
    batch_size: int = 4
    precision: str = "fp32"
    num_threads: int = 1
    validate_every_steps: int = 3
    validate_every_epochs: int = 0
    data: Data = Data()
    rates: Rates = Rates()


class Points(Samples):
    """(x, y) of a line; each epoch draws more of them."""

    def __init__(self, data: Data, first: int = 0) -> None:
        self.data, self.first = data, first

    def __len__(self) -> int:
        return 1000

    def epoch_draw(self, epoch: int) -> npt.NDArray[np.int64]:
        return np.arange(self.data.points + epoch * self.data.grows_by)

    def load(self, index: int, epoch: int) -> Sample:
        x = np.random.default_rng([self.first, index]).uniform(-1, 1, 1).astype(np.float32)
        return {"x": x, "y": 3 * x - 1}


class Line(nn.Module):
    """Two linear layers with a rate each."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(1, 4), nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(torch.tanh(self.body(x)))
        return y


def step(model: nn.Module, batch: Batch, context: StepContext[Config]) -> StepOutput:
    anneal = min(1.0, (context.step + 1) / 10)  # depends on the step, and so on no constant in a sample
    loss = anneal * (model(batch["x"]) - batch["y"]).square().mean()
    return StepOutput(loss, {"fit": loss.detach()}, {"anneal": torch.tensor(anneal)})


def evaluate(model: nn.Module, batch: Batch, context: StepContext[Config]) -> Evaluation:
    errors = (model(batch["x"]) - batch["y"]).square().double()
    return Evaluation({"loss": (errors.sum(), len(errors))})


def optimizer(model: nn.Module, config: Config) -> torch.optim.Optimizer:
    assert isinstance(model, Line)
    groups = [
        {"params": model.body.parameters(), "lr": config.rates.body, "name": "body"},
        {"params": model.head.parameters(), "lr": config.rates.head, "name": "head"},
    ]
    return torch.optim.SGD(groups, momentum=0.9)


def lr_factor(config: Config, at: Position) -> Mapping[str, float]:
    """Returns linear decays to one least rate, which is another factor for each group."""
    left = 1 - at.step / at.steps
    return {
        name: max(left, config.rates.least / rate)
        for name, rate in (("body", config.rates.body), ("head", config.rates.head))
    }


def file_names(config: Config, at: CheckpointAt) -> Mapping[str, str]:
    parts = ("model", "optimizer", "scheduler", "scaler", "ema", "clipper")
    return {part: f"step_{at.step}_{part}.pt" for part in parts} | {"skipped": f"step_{at.step}_skipped.txt"}


def figures(config: Config, found: RunFigures, batch: Batch) -> Mapping[str, float]:
    return {"train/total": found.loss, "rates/body": found.rates[0], "rates/head": found.rates[1]}


def samples(config: Config, caches: Caches) -> Samples:
    return Points(config.data)


def validation_samples(config: Config, caches: Caches) -> Samples:
    return Points(config.data.model_copy(update={"grows_by": 0}), first=7)


RECIPE = Recipe[Config](
    name="stepwise",
    config_model=Config,
    samples=samples,
    model=lambda config, facts: Line(),
    step=step,
    optimizer=optimizer,
    lr_factor=lr_factor,
    validation=Validation(
        samples=lambda config, caches: Points(config.data.model_copy(update={"grows_by": 0}), first=7),
        evaluate=evaluate,
    ),
    keys=Keys(not_learned=frozenset({"data.workers"})),
    files=Files(names=file_names),
    reports=Reports(tags=Tags(parts="train/", metrics="schedule/"), figures=figures),
)
