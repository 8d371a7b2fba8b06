"""Everything that training changes: weights and their average, optimizer, loss scale, clipper, position in the run.

What is not in here is a pure function of the configuration and the position (order of samples, dropout, learning rate),
so this is exactly what a checkpoint holds. Changed by `loop` alone; saved by `checkpoint`, restored by `resume`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from pydantic import Field

from lead_protocol.strict_model import StrictModel
from lead_trainer.contract.step import Facts
from lead_trainer.engine.step.batch_norms import BatchNorms
from lead_trainer.engine.step.clip import Clipper
from lead_trainer.engine.step.ema import WeightAverage
from lead_trainer.engine.step.optimizers import Optimizers
from lead_trainer.engine.step.ranking import Best, Ranking

Pairs = dict[str, tuple[float, float]]  # (sum, count) by tag


class LoopState(StrictModel):
    """The part of the state that is no tensor, as `loop_<epoch>.json`."""

    step: int
    epoch: int
    step_in_epoch: int
    skipped_steps: int
    skipped_in_a_row: int = 0
    best_metric: float | None
    epoch_totals: Pairs
    best: Best = Best()
    average_updates: int = 0
    history: list[dict[str, float]] = Field(default_factory=list)
    facts: dict[str, Any] = Field(default_factory=dict)


@dataclass
class EpochTotals:
    """Sums of losses and metrics since the epoch began, on the device until somebody asks."""

    sums: dict[str, torch.Tensor] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)

    def add(self, values: Mapping[str, torch.Tensor]) -> None:
        """Adds one step's scalars."""
        for name, value in values.items():
            value = value.detach().double()
            self.sums[name] = self.sums[name] + value if name in self.sums else value
            self.counts[name] = self.counts.get(name, 0.0) + 1.0

    def as_pairs(self) -> Pairs:
        """Returns (sum, count) by name."""
        return {name: (float(total.item()), self.counts[name]) for name, total in self.sums.items()}


def totals_of(pairs: Mapping[str, tuple[float, float]]) -> EpochTotals:
    """Returns the totals that `as_pairs` returned."""
    sums = {name: torch.tensor(total, dtype=torch.float64) for name, (total, _) in pairs.items()}
    return EpochTotals(sums, {name: count for name, (_, count) in pairs.items()})


def merged(ranks: list[Pairs]) -> Pairs:
    """Adds the pairs of all ranks, in rank order."""
    result: Pairs = {}
    for pairs in ranks:
        for name, (total, count) in pairs.items():
            before, seen = result.get(name, (0.0, 0.0))
            result[name] = (before + total, seen + count)
    return result


def greatest(ranks: list[dict[str, float]]) -> dict[str, float]:
    """Returns the greatest finite value of each name over the ranks; a rank without samples has none."""
    result: dict[str, float] = {}
    for values in ranks:
        for name, value in values.items():
            if math.isfinite(value):
                result[name] = max(value, result.get(name, value))
    return result


def means(pairs: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Returns the finite means of merged pairs."""
    values = {name: total / count for name, (total, count) in pairs.items() if count}
    return {name: value for name, value in values.items() if math.isfinite(value)}


@dataclass
class TrainState:
    """The weights and where they are in the run."""

    model: torch.nn.Module  # bare: parameter names as LEAD writes them
    trained: torch.nn.Module  # the same parameters, wrapped for gradient averaging
    optimizers: Optimizers
    scaler: torch.amp.GradScaler
    clipper: Clipper
    norms: BatchNorms
    ranking: Ranking
    average: WeightAverage | None = None
    facts: Facts = field(default_factory=dict)  # of the data
    helpers: torch.nn.Module | None = None  # the recipe's frozen networks: no part of a checkpoint
    step: int = 0  # optimizer steps completed, skipped ones included
    epoch: int = 0  # epochs completed
    step_in_epoch: int = 0
    skipped_steps: int = 0
    skipped_in_a_row: int = 0
    totals: EpochTotals = field(default_factory=EpochTotals)
    history: list[dict[str, float]] = field(default_factory=list)  # means of each epoch, for the watch rules
    validation: dict[str, float] = field(default_factory=dict)  # of `validated_step`
    validated_step: int = -1

    @property
    def judged(self) -> torch.nn.Module:
        """The weights that validation and export use: the average where there is one."""
        return self.model if self.average is None else self.average.model

    @property
    def best_metric(self) -> float | None:
        """The best value so far of the metric that ranks epochs."""
        return self.ranking.best.value

    def fresh_validation(self) -> dict[str, float]:
        """Returns the validation metrics of exactly these weights, empty where they were not validated."""
        return self.validation if self.validated_step == self.step else {}

    def advance(self, *, skipped: bool) -> None:
        """Counts one completed step."""
        self.step += 1
        self.step_in_epoch += 1
        self.skipped_steps += int(skipped)
        self.skipped_in_a_row = self.skipped_in_a_row + 1 if skipped else 0

    def finish_epoch(self) -> None:
        """Counts one completed epoch; its totals stay until `begin_epoch`."""
        self.epoch += 1
        self.step_in_epoch = 0

    def reopen_epoch(self, steps: int) -> None:
        """Goes back to the line before `finish_epoch`, for an epoch whose `steps` are done but which is not judged."""
        self.epoch -= 1
        self.step_in_epoch = steps

    def begin_epoch(self) -> None:
        """Forgets the totals of the epoch before."""
        self.totals = EpochTotals()

    def loop_state(self, pairs: Pairs) -> LoopState:
        """Returns what is no tensor; `pairs` are the totals of all ranks."""
        finite = {name: pair for name, pair in pairs.items() if math.isfinite(pair[0])}
        return LoopState(
            step=self.step,
            epoch=self.epoch,
            step_in_epoch=self.step_in_epoch,
            skipped_steps=self.skipped_steps,
            skipped_in_a_row=self.skipped_in_a_row,
            best_metric=self.best_metric,
            epoch_totals=finite,
            best=self.ranking.best,
            average_updates=self.average.updates if self.average is not None else 0,
            history=self.history,
            facts=dict(self.facts),
        )

    def take_loop_state(self, loop: LoopState) -> None:
        """Continues at a saved position."""
        self.step, self.epoch, self.step_in_epoch = loop.step, loop.epoch, loop.step_in_epoch
        self.skipped_steps, self.skipped_in_a_row = loop.skipped_steps, loop.skipped_in_a_row
        self.ranking.best = loop.best
        self.totals, self.history = totals_of(loop.epoch_totals), list(loop.history)

    def schedule_state(self) -> dict[str, Any]:
        """Returns the learning-rate schedule under the names of torch's schedulers."""
        return {
            "last_epoch": self.step,
            "base_lrs": list(self.optimizers.base_rates),
            "_last_lr": self.optimizers.rates(),
        }
