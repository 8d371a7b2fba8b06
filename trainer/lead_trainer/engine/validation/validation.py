"""Validation: every sample of the split once, over all ranks, and the exact means of what the recipe counts.

The bare model runs on each rank's share in eval mode; the shares need not be equal. Before each batch the ranks ask
each other whether one of them got a stop signal: then validation ends without a result. A sum of a batch that is not
finite is left out, and batches without a loss are counted: no single sample ends a run. Nothing that training depends
on changes: its generators are seeded before every step.
"""

import math
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch

from lead_trainer.contract.checked_parts import BadPart
from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.reports import VALIDATION, Picture
from lead_trainer.contract.results import returned
from lead_trainer.contract.samples import Batch, Indices, Sample, Samples
from lead_trainer.contract.step import StepContext
from lead_trainer.contract.validation import Evaluation, Validation
from lead_trainer.data.device_batch import to_device
from lead_trainer.data.loader import SAMPLE_OUTAGE_S, on_device_of
from lead_trainer.data.loader_stats import LoaderClock
from lead_trainer.data.node_shares import validation_share
from lead_trainer.data.ordered_pool import ordered_map
from lead_trainer.data.retrying_source import RetryingSource, decoded_sample
from lead_trainer.engine.group.ddp import Group
from lead_trainer.engine.step.epoch_plan import StagePlan
from lead_trainer.engine.step.precision import autocast
from lead_trainer.engine.step.recipe_parts import collated, made_metrics
from lead_trainer.engine.step.seeding import seed_step
from lead_trainer.engine.step.state import Pairs, TrainState, greatest, means, merged
from lead_trainer.errors import BadData

if TYPE_CHECKING:
    from torchmetrics import Metric  # which takes long to load, and few recipes need


@dataclass(frozen=True)
class Validated:
    """What validation found, the same on every rank."""

    values: dict[str, float]  # `val/<tag>`, finite
    nonfinite: int  # batches without a finite loss, of all ranks
    batches: int
    pictures: Mapping[str, Picture] = field(default_factory=dict)  # of this rank's samples, by whole tag


@dataclass
class Sums:
    """What the batches of one rank add up to, on the device until somebody asks; without what is not finite."""

    sums: dict[str, torch.Tensor] = field(default_factory=dict)
    counts: dict[str, torch.Tensor] = field(default_factory=dict)
    largest: dict[str, torch.Tensor] = field(default_factory=dict)
    pictures: dict[str, Picture] = field(default_factory=dict)  # by whole tag
    finite_losses: list[torch.Tensor] = field(default_factory=list)  # of each batch, whether

    def add(self, evaluation: Evaluation) -> None:
        """Adds what is finite of one batch."""
        for tag, (total, count) in evaluation.totals.items():
            total = total.double()
            finite = torch.isfinite(total)
            total, seen = torch.where(finite, total, 0.0), finite.double() * count
            self.sums[tag] = self.sums[tag] + total if tag in self.sums else total
            self.counts[tag] = self.counts[tag] + seen if tag in self.counts else seen
        for tag, value in evaluation.largest.items():
            value = torch.where(torch.isfinite(value), value, -math.inf)
            self.largest[tag] = torch.maximum(self.largest[tag], value) if tag in self.largest else value
        self.pictures.update(evaluation.pictures)
        self.finite_losses.append(torch.isfinite(evaluation.totals["loss"][0]))

    def as_pairs(self) -> Pairs:
        """Returns (sum, count) by tag."""
        return {tag: (float(total), float(self.counts[tag])) for tag, total in self.sums.items()}

    def largest_values(self) -> dict[str, float]:
        """Returns the greatest value by tag, minus infinity where none was finite."""
        return {tag: float(value) for tag, value in self.largest.items()}

    def batch_counts(self) -> tuple[int, int]:
        """Returns how many batches have a loss that is not finite, and how many there were."""
        return sum(not bool(finite) for finite in self.finite_losses), len(self.finite_losses)


@dataclass(frozen=True, kw_only=True)
class Validator:
    """The validation split of a stage, on one rank."""

    recipe: Recipe[Any]
    validation: Validation[Any]
    config: Any
    plan: StagePlan
    samples: Samples
    rank_batch: int
    threads: int
    group: Group
    dtype: torch.dtype

    def run(
        self,
        state: TrainState,
        report: Callable[[int, int], None] = lambda done, of: None,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> Validated | None:
        """Evaluates the current weights on every rank; a collective. `report` is called for each batch of this rank.

        Returns None once `is_stopping` is true on any rank. Raises BadData for a split in which nothing can be counted.
        """
        model = state.judged
        self.group.share_buffers(model)
        was_training = model.training
        model.eval()
        metrics = self._metrics(state)
        try:
            sums = self._sums(model, self._context(state, metrics), report, is_stopping)
        finally:
            model.train(was_training)
        if sums is None:
            return None
        exact = means(merged(self.group.gather(sums.as_pairs()))) | greatest(self.group.gather(sums.largest_values()))
        nonfinite, batches = (sum(counts) for counts in zip(*self.group.gather(sums.batch_counts()), strict=True))
        if "loss" not in exact and not nonfinite:
            raise BadData("validation counts no sample for `loss`; check the labels of the validation split")
        values = self._summary(exact) if "loss" in exact else {}
        results = self._results(metrics)
        if twice := sorted(values.keys() & results.keys()):
            raise BadPart(
                f"recipe {self.recipe.name!r}: validation gives {VALIDATION}{twice[0]} twice, once by a metric"
            )
        values = {f"{VALIDATION}{tag}": float(value) for tag, value in {**values, **results}.items()}
        state.validation = {tag: value for tag, value in values.items() if math.isfinite(value)}
        state.validated_step = state.step
        return Validated(state.validation, nonfinite, batches, sums.pictures)

    def _summary(self, exact: Mapping[str, float]) -> dict[str, float]:
        found = self.validation.summary(self.config, exact)
        return dict(returned(self.recipe.name, "validation.summary", found, Mapping))

    def _metrics(self, state: TrainState) -> "Mapping[str, Metric]":
        """Returns the recipe's metrics, empty, on the device; the engine merges them, not they themselves."""
        metrics = made_metrics(self.recipe, self.validation, self.config, state.facts)
        for metric in metrics.values():
            metric.sync_on_compute = False
            metric.reset()
            metric.to(self.group.device)
        return metrics

    def _results(self, metrics: "Mapping[str, Metric]") -> dict[str, float]:
        """Returns the results over all ranks by tag; a collective."""
        found: dict[str, float] = {}
        if not metrics:
            return found
        from lead_trainer.engine.validation.metric_states import merged_metric, packed, scalars, unpacked

        for name, metric in metrics.items():
            ranks = [unpacked(state, metric) for state in self.group.gather_tensors(packed(metric))]
            found |= scalars(name, merged_metric(metric, ranks).compute())
        return found

    def _context(self, state: TrainState, metrics: "Mapping[str, Metric]") -> StepContext[Any]:
        return StepContext(
            config=self.config,
            at=self.plan.at(state.step, state.epoch, state.step_in_epoch),
            facts=state.facts,
            device=self.group.device,
            helpers=state.helpers,
            metrics=metrics,
        )

    @torch.no_grad()
    def _sums(
        self,
        model: torch.nn.Module,
        context: StepContext[Any],
        report: Callable[[int, int], None],
        is_stopping: Callable[[], bool],
    ) -> Sums | None:
        draw, world = self.samples.epoch_draw(0), self.group.world
        sums, numbers = Sums(), self._share(draw)
        most = -(-len(draw) // (world.world_size * self.rank_batch))  # batches of the largest share
        with closing(self._batches(numbers)) as batches:
            for number in range(most):
                if self.group.any(is_stopping()):
                    return None
                batch = next(batches, None)
                if batch is None:
                    continue  # of a smaller share: the others still ask
                seed_step(self.config.seed, -1, number, self.group.world.rank)
                with autocast(self.dtype, self.group.device):
                    found = self.validation.evaluate(model, batch, replace(context, micro_batch=number))
                sums.add(returned(self.recipe.name, "validation.evaluate", found, Evaluation))
                report(number + 1, -(-len(numbers) // self.rank_batch))
        return sums

    def _share(self, draw: Indices) -> list[int]:
        """Returns this rank's share of what epoch 0 draws, of one size on every rank but for one sample."""
        shards = self.samples.shards_of(draw)
        world = self.group.world
        share = validation_share(draw, shards, world.rank, world.world_size, self.config.canonical_nodes)
        return [int(index) for index in share]

    def _batches(self, numbers: Sequence[int]) -> Generator[Batch]:
        """Yields samples as batches; the last one may be smaller."""
        retrying, left = RetryingSource(self.samples, SAMPLE_OUTAGE_S, LoaderClock()), threading.Event()
        ahead = self.threads + 2 * self.rank_batch

        def load(index: int) -> Sample:
            return decoded_sample(self.samples, index, retrying.load(index, 0, left.is_set))

        loaded = ordered_map(load, numbers, self.threads, ahead)
        try:
            while ready := list(islice(loaded, self.rank_batch)):
                batch = to_device(collated(self.recipe)(ready), self.group.device)
                finish = on_device_of(self.recipe, self.config)
                yield finish(batch) if finish else batch
        finally:
            left.set()
            loaded.close()  # type: ignore[attr-defined]  # a generator: stops the threads
