"""Mean average precision over classes, and the mean errors of found boxes, as a state of rows."""

from collections.abc import Sequence

import numpy as np
import torch
from torchmetrics import Metric

from lead_trainer.recipes.nuplan.data_keys import CLASSES
from lead_trainer.recipes.nuplan.metric_states.average_precision import Boxes, Precision, precision_of
from lead_trainer.recipes.nuplan.metric_states.rows import gathered_rows


class DetectionPrecision(Metric):
    """AP by centre distance (`average_precision`); the mean is over the classes that occur in the truth.

    Rows are sorted by sample and content before anything is computed, so no order of ranks changes a bit.
    """

    full_state_update = False
    truth_samples: list[torch.Tensor]
    truth: list[torch.Tensor]
    guess_samples: list[torch.Tensor]
    guess: list[torch.Tensor]

    def __init__(self, classes: Sequence[str] = CLASSES) -> None:
        super().__init__()
        self.classes = tuple(classes)
        for name in ("truth_samples", "truth", "guess_samples", "guess"):
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(
        self, truth_samples: torch.Tensor, truth: torch.Tensor, guess_samples: torch.Tensor, guess: torch.Tensor
    ) -> None:
        """Adds rows (N, 9) of class, x, y, length, width, yaw, vx, vy and score (of truth: 0), their samples (N,)."""
        self.truth_samples.append(truth_samples.long().cpu())
        self.truth.append(truth.double().cpu())
        self.guess_samples.append(guess_samples.long().cpu())
        self.guess.append(guess.double().cpu())

    def by_class(self) -> dict[str, Precision]:
        """Returns what was found of each class that occurs in the truth."""
        truth, guess = self._boxes(self.truth_samples, self.truth), self._boxes(self.guess_samples, self.guess)
        return {
            name: precision_of(truth[number], guess[number])
            for number, name in enumerate(self.classes)
            if len(truth[number].sample)
        }

    def compute(self) -> dict[str, float]:
        """Returns `mAP`, `AP/<class>`, and `<error>_error`, the mean over classes; nothing without a truth."""
        found = self.by_class()
        if not found:
            return {}
        errors = {
            f"{name}_error": float(np.mean([one.errors[name] for one in found.values()]))
            for name in next(iter(found.values())).errors
        }
        each = {f"AP/{name}": one.mean for name, one in found.items()}
        return {"mAP": float(np.mean([one.mean for one in found.values()])), **each, **errors}

    def _boxes(self, samples: list[torch.Tensor], rows: list[torch.Tensor]) -> list[Boxes]:
        numbers, values = gathered_rows(samples, rows, 9)
        kinds = values[:, 0].astype(np.int64)
        picked = [kinds == number for number in range(len(self.classes))]
        return [Boxes(numbers[own], values[own, 1:8], values[own, 8]) for own in picked]
