"""Validation: every sample of the split once, over all ranks, and the exact means of what the recipe counts.

The bare model runs on each rank's share in eval mode, so no rank waits for another before the sums are exchanged, and
the shares need not be equal. Nothing that training depends on changes: its generators are seeded before every step.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from lead_protocol.store.object_store import StoreError
from lead_trainer.data.loader import on_device_of
from lead_trainer.data.ordered_pool import ordered_map
from lead_trainer.data.patient_source import NamesSamples
from lead_trainer.engine.ddp import Group
from lead_trainer.engine.precision import autocast
from lead_trainer.engine.ranking import VALIDATION
from lead_trainer.engine.seeding import seed_step
from lead_trainer.engine.state import Pairs, TrainState, greatest, means, merged
from lead_trainer.errors import BadData
from lead_trainer.recipes.recipe import Batch, Evaluation, Sample, SampleSource


@dataclass(frozen=True)
class Validator:
    """The validation split of a stage, on one rank."""

    recipe: Any  # a Recipe that Validates
    config: Any
    seed: int
    samples: SampleSource
    rank_batch: int
    threads: int
    group: Group
    dtype: torch.dtype

    def run(self, state: TrainState) -> dict[str, float]:
        """Evaluates the weights that count and returns `val/<tag>`, on every rank; a collective."""
        model = state.judged
        self.group.share_buffers(model)
        was_training = model.training
        model.eval()
        try:
            totals, largest = self._totals(model)
        finally:
            model.train(was_training)
        exact = means(merged(self.group.gather(totals))) | greatest(self.group.gather(largest))
        if "loss" not in exact:
            raise BadData("validation has no finite mean `loss`; look at the labels of the validation split")
        told = self.recipe.validation_metrics(self.config, exact)
        state.validation = {f"{VALIDATION}{tag}": float(value) for tag, value in told.items()}
        state.validated_step = state.step
        return state.validation

    @torch.no_grad()
    def _totals(self, model: torch.nn.Module) -> tuple[Pairs, dict[str, float]]:
        sums: dict[str, torch.Tensor] = {}
        largest: dict[str, torch.Tensor] = {}
        counts: dict[str, torch.Tensor] = {}
        for number, batch in enumerate(self._batches()):
            seed_step(self.seed, -1, number, self.group.world.rank)
            with autocast(self.dtype, self.group.device):
                evaluation: Evaluation = self.recipe.evaluate(model, batch, self.config)
            for tag, (total, count) in evaluation.totals.items():
                total, count = total.double(), torch.as_tensor(count, dtype=torch.float64)
                sums[tag] = sums[tag] + total if tag in sums else total
                counts[tag] = counts[tag] + count if tag in counts else count
            for tag, value in evaluation.largest.items():
                largest[tag] = torch.maximum(largest[tag], value) if tag in largest else value
        pairs = {tag: (float(sums[tag]), float(counts[tag])) for tag in sums}
        return pairs, {tag: float(value) for tag, value in largest.items()}

    def _batches(self) -> Iterator[Batch]:
        """Yields this rank's share of what epoch 0 draws, in order; the last batch may be smaller."""
        world = self.group.world
        numbers = [int(index) for index in self.samples.epoch_draw(0)[world.rank :: world.world_size]]
        loaded = ordered_map(self._load, numbers, self.threads, self.threads + 2 * self.rank_batch)
        try:
            while ready := list(islice(loaded, self.rank_batch)):
                batch = {
                    key: value.to(self.group.device, non_blocking=True) if isinstance(value, torch.Tensor) else value
                    for key, value in self.recipe.collate(ready).items()
                }
                finish = on_device_of(self.recipe, self.config)
                yield finish(batch) if finish else batch
        finally:
            loaded.close()  # type: ignore[attr-defined]  # a generator: stops the threads

    def _load(self, index: int) -> Sample:
        try:
            return self.samples.load(index, 0)
        except StoreError:
            raise  # names the object, and its class decides the exit code
        except Exception as error:
            name = self.samples.name(index) if isinstance(self.samples, NamesSamples) else str(index)
            raise BadData(f"validation sample {name}: {type(error).__name__}: {error}") from error
