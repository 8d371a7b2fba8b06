"""Sums and counts of metrics: a mean of them is the same for any number of ranks and any size of the last batch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class Totals:
    """What was added up so far, by tag; `merge` of several ranks' totals is what one rank would have."""

    sums: Mapping[str, float] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)

    def add(self, values: Mapping[str, Tensor]) -> "Totals":
        """Returns the totals with one value an item added; NaN values are not counted."""
        more = {tag: counted(value) for tag, value in values.items()}
        return self.merge(
            Totals(
                {tag: float(total) for tag, (total, _) in more.items()},
                {tag: count for tag, (_, count) in more.items()},
            )
        )

    def merge(self, other: "Totals") -> "Totals":
        """Returns the totals of both."""
        tags = sorted({*self.sums, *other.sums})
        return Totals(
            {tag: math.fsum((self.sums.get(tag, 0.0), other.sums.get(tag, 0.0))) for tag in tags},
            {tag: self.counts.get(tag, 0) + other.counts.get(tag, 0) for tag in tags},
        )

    def means(self) -> dict[str, float]:
        """Returns the mean of each tag; NaN where nothing was counted."""
        return {tag: self.sums[tag] / self.counts[tag] if self.counts[tag] else math.nan for tag in self.sums}


def counted(values: Tensor) -> tuple[Tensor, int]:
    """Returns the sum in float64 of the values that are numbers, and how many these are."""
    known = values[~values.isnan()].double()
    return known.sum(), known.numel()


def batch_totals(values: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor | int]]:
    """Returns what `recipes.recipe.Evaluation.totals` holds for values of one item each."""
    return {tag: counted(value) for tag, value in values.items()}


def by_class(values: Mapping[str, Tensor], classes_B: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
    """Returns each metric of the items of each class, tagged `<metric>/<class>`; empty classes are left out."""
    present = torch.unique(classes_B).tolist()
    return {f"{tag}/{names[number]}": value[classes_B == number] for number in present for tag, value in values.items()}
