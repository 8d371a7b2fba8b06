"""Which of a validation's metrics a progress record, and so `kubectl`, has room for: the recipe's choice first.

One rule for training and for stages of kind Evaluation; the others are in the event file, in manifests and reports.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lead_protocol.progress_record import MAX_METRICS
from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.reports import VALIDATION
from lead_trainer.engine.step.ranking import METRIC_NAME


def chosen_metrics(recipe: Recipe[Any]) -> Sequence[str]:
    """Returns the metrics that a recipe wants to be shown first."""
    return recipe.validation.shown if recipe.validation is not None else ()


def shown_metrics(values: Mapping[str, float], chosen: Sequence[str]) -> dict[str, float]:
    """Returns at most MAX_METRICS of `values`: `chosen` (tags without `val/`) first, as far as they were measured.

    The rest is of validation first, and of these the names with few parts, then few underscores, then few letters:
    `val/mAP` before `val/AP/vehicle` and `val/ADE_detected`. The loss has a field of its own in a record.
    """
    first = {f"{VALIDATION}{tag}": place for place, tag in enumerate(chosen)}
    names = [name for name in values if METRIC_NAME.fullmatch(name) and name != "loss"]
    last = len(first)

    def rank(name: str) -> tuple[int, bool, int, int, int, str]:
        outside = not name.startswith(VALIDATION)
        return first.get(name, last), outside, name.count("/"), name.count("_"), len(name), name

    return {name: values[name] for name in sorted(names, key=rank)[:MAX_METRICS]}
