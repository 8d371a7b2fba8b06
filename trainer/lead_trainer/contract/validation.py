"""A recipe's validation: the samples of the split, and what is measured on them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic

from lead_trainer.contract.checked_parts import BadPart, checked_parts
from lead_trainer.contract.reports import Picture
from lead_trainer.contract.results import refuse_no_scalars, refuse_no_tags, scalar_fault, short
from lead_trainer.contract.samples import Batch, Caches, Samples
from lead_trainer.contract.step import ConfigT, Facts, StepContext

if TYPE_CHECKING:
    import torch
    import torchmetrics


@dataclass(frozen=True)
class Evaluation:
    """What one validation batch adds to each metric: its sum over items, and the number of these items.

    The engine adds both over batches and ranks and divides once, so a mean is exact for any number of processes and any
    size of the last batch. Ratios fit too: intersections and unions of a class, for example.
    """

    totals: Mapping[str, "tuple[torch.Tensor, torch.Tensor | int]"]  # (scalar sum, count) by tag; has `loss`
    largest: Mapping[str, "torch.Tensor"] = field(default_factory=dict)  # scalars; the greatest of all batches counts
    pictures: Mapping[str, Picture] = field(default_factory=dict)  # by whole tag; of (T, H, W, 3) a clip is shown

    def __post_init__(self) -> None:
        """Raises BadPart for totals that are no pairs, without `loss`, and for what is no scalar tensor by its tag."""
        refuse_no_tags("Evaluation.totals", self.totals)
        for tag, pair in self.totals.items():
            if not (isinstance(pair, tuple) and len(pair) == 2):
                raise BadPart(f"Evaluation.totals[{tag!r}]: found {short(pair)}, expected a pair (sum, count)")
            if fault := scalar_fault(pair[0]):
                raise BadPart(f"Evaluation.totals[{tag!r}]: its sum is {fault}, expected a tensor with one value")
            if not isinstance(pair[1], int | float) and (fault := scalar_fault(pair[1])):
                raise BadPart(f"Evaluation.totals[{tag!r}]: its count is {fault}, expected a number")
        if "loss" not in self.totals:
            raise BadPart(f"Evaluation.totals: found {sorted(self.totals)}, expected `loss` among them")
        refuse_no_scalars("Evaluation.largest", self.largest)
        refuse_no_tags("Evaluation.pictures", self.pictures)


def no_metrics(config: Any, facts: Facts) -> "Mapping[str, torchmetrics.Metric]":
    """Returns none."""
    return {}


def as_they_are(config: Any, means: Mapping[str, float]) -> Mapping[str, float]:
    """Returns the means."""
    return means


@checked_parts
@dataclass(frozen=True, kw_only=True)
class Validation(Generic[ConfigT]):
    """The validation split, and what is measured on it."""

    #: The samples of the split, None where this config has none; `epoch_draw(0)` is the whole of it.
    samples: Callable[[ConfigT, Caches], Samples | None]
    #: One batch without gradients; the model is bare, in eval mode, and holds the averaged weights if there are any.
    evaluate: "Callable[[torch.nn.Module, Batch, StepContext[ConfigT]], Evaluation]"
    #: What is reported as `val/<tag>`: the means, and what follows from them, such as a mean over classes.
    summary: Callable[[ConfigT, Mapping[str, float]], Mapping[str, float]] = as_they_are
    #: Metrics of torchmetrics by name (one of your own sets `full_state_update = False`), for
    #: what no mean can express (average precision, Fréchet distance, calibration): states that `evaluate` updates
    #: through `context.metrics`, that the engine merges over the ranks, and whose result is reported as `val/<name>`,
    #: or under `val/<tag>` each where `compute` returns a mapping by tag.
    metrics: "Callable[[ConfigT, Facts], Mapping[str, torchmetrics.Metric]]" = no_metrics
    #: Tags without `val/` of the metrics that a run's status shows first; it has room for 16. Others follow by
    #: their names, those with few parts and few letters first; one that a validation lacks is passed over.
    shown: tuple[str, ...] = ()
