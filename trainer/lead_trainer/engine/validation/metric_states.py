"""States of torchmetrics over several ranks: packed as tensors by name, merged in the order of the ranks.

torchmetrics would gather them itself, over the group of the gradients and by padding to the largest; here they travel
as every other decision does, and a rank without a sample is no exception.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torchmetrics import Metric

from lead_trainer.contract.results import scalar_fault
from lead_trainer.errors import BadConfig

State = dict[str, Any]  # tensors, or lists of them, by the state's name


def packed(metric: Metric) -> dict[str, torch.Tensor]:
    """Returns a metric's state as tensors: `name`, or `name/<number>` of a list."""
    tensors: dict[str, torch.Tensor] = {}
    for name, value in metric.metric_state.items():
        if isinstance(value, torch.Tensor):
            tensors[name] = value
        else:
            tensors |= {f"{name}/{number}": one for number, one in enumerate(value)}
    return tensors


def unpacked(tensors: Mapping[str, torch.Tensor], like: Metric) -> State:
    """Returns the state that `packed` took apart, for a metric like `like`."""
    state: State = {}
    for name, value in like.metric_state.items():
        if isinstance(value, torch.Tensor):
            state[name] = tensors[name].to(like.device)
        else:
            count = sum(key.rpartition("/")[0] == name for key in tensors)
            state[name] = [tensors[f"{name}/{number}"].to(like.device) for number in range(count)]
    return state


def refuse_no_merge(name: str, metric: Metric) -> None:
    """Raises BadConfig for a metric of which two ranks would report only one's: without a state, or without a merge."""
    what = f"validation.metrics[{name!r}]: {type(metric).__name__}"
    if not metric.metric_state:
        raise BadConfig(
            f"{what} has no state, so what one rank counts is lost on the others; register each tensor that update "
            "changes: self.add_state('total', torch.tensor(0.0), dist_reduce_fx='sum'); a wrapper of torchmetrics "
            "keeps its states in another metric: give that one"
        )
    merged = merged_metric(metric, [unpacked(packed(metric), metric)] * 2)
    if (stacked := _stacked_states(metric)) and _expects_one_rank(merged):
        raise BadConfig(
            f"{what}: its state {stacked[0]!r} has no dist_reduce_fx, and compute does not expect the states of "
            "several ranks in one tensor; pass 'sum', 'mean', 'max', 'min' or 'cat' to add_state"
        )
    metric.reset()


def _stacked_states(metric: Metric) -> list[str]:
    """Returns the states that torchmetrics stacks over the ranks, (ranks, …), for `compute` to aggregate."""
    if type(metric).merge_state is not Metric.merge_state:
        return []
    return [
        name
        for name, reduction in metric._reductions.items()
        if reduction is None and isinstance(metric._defaults[name], torch.Tensor)
    ]


def _expects_one_rank(merged: Metric) -> bool:
    """Returns whether the result over two ranks without a sample is no scalar; one that needs samples may be right."""
    try:
        with warnings.catch_warnings(action="ignore"):
            result = merged.compute()
    except Exception:  # of no sample: nothing was measured yet
        return False
    return not isinstance(result, Mapping) and bool(scalar_fault(result))


def merged_metric(metric: Metric, ranks: Sequence[State]) -> Metric:
    """Returns `metric` with the states of all ranks in its own one's place; raises BadConfig where it has no merge."""
    try:
        metric.reset()
        if _stacked_states(metric):
            for name, reduction in metric._reductions.items():
                setattr(metric, name, _reduced([state[name] for state in ranks], reduction))
        else:
            for state in reversed(ranks):  # torchmetrics puts what is merged before what is there
                metric.merge_state(state)
        metric._update_count = 1  # a merge counts for none, and a result without one is warned of
    except RuntimeError as error:
        raise BadConfig(
            f"validation.metrics: {type(metric).__name__} cannot be merged over ranks ({error}); set "
            "full_state_update = False in its class, or give it a merge_state of its own"
        ) from error
    return metric


def _reduced(values: Sequence[Any], reduction: str | Callable[..., Any] | None) -> Any:
    """Returns one state of all ranks as torchmetrics' own synchronisation does."""
    if not isinstance(values[0], torch.Tensor):
        return [one for value in values for one in value]
    if len(values) == 1:
        return values[0]
    together = torch.stack(list(values))
    return reduction(together) if callable(reduction) else together  # torchmetrics holds no text here


def scalars(name: str, result: Any) -> dict[str, float]:
    """Returns a metric's result by tag: under its name, or by the tags of a mapping; raises BadConfig for others."""
    by_tag = result if isinstance(result, Mapping) else {name: result}
    for tag, value in by_tag.items():
        fault = "" if isinstance(value, int | float) else scalar_fault(value)
        if fault or not isinstance(tag, str):
            raise BadConfig(
                f"validation.metrics: {name} gives {fault or f'the tag {tag!r}'}, expected a scalar, or scalars by tag"
            )
    return {tag: float(value) for tag, value in by_tag.items()}
