"""The optimizers of a stage: one, or several by name, and the learning rates that follow from the schedule."""

import difflib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from lead_trainer.engine.step.optim import load_optimizer
from lead_trainer.errors import BadConfig

ONLY = ""  # the name of an optimizer that has none
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")  # it is part of a file's name and of the tag of its loss


class Optimizers:
    """Every optimizer of a stage, in the order in which they step."""

    def __init__(self, made: torch.optim.Optimizer | Mapping[str, torch.optim.Optimizer]) -> None:
        """Takes what a recipe made; raises BadConfig for none, a bad name, and a parameter that two of them move."""
        alone = isinstance(made, torch.optim.Optimizer)
        self.by_name = {ONLY: made} if isinstance(made, torch.optim.Optimizer) else dict(made)
        if not self.by_name:
            raise BadConfig("optimizer: found no optimizer, expected one, or several by name")
        owners: dict[torch.nn.Parameter, str] = {}
        for name, optimizer in self.by_name.items():
            if not alone and not (isinstance(name, str) and _NAME.fullmatch(name)):
                raise BadConfig(
                    f"optimizer: found the name {name!r}, expected a letter or digit and up to 39 more of them, _ or -"
                )
            if not isinstance(optimizer, torch.optim.Optimizer):
                raise BadConfig(f"optimizer: {name!r} is a {type(optimizer).__name__}, expected a torch Optimizer")
            for parameter in parameters_of(optimizer):
                if parameter in owners:
                    raise BadConfig(f"optimizer: {owners[parameter]!r} and {name!r} move the same parameter")
                owners[parameter] = name
        self.base_rates = tuple(float(group["lr"]) for group in self.groups())

    def refuse_other_parameters(self, model: torch.nn.Module) -> None:
        """Raises BadConfig unless each parameter of the model that learns is moved, and nothing else is."""
        moved = {id(parameter) for optimizer in self.by_name.values() for parameter in parameters_of(optimizer)}
        left = [name for name, one in model.named_parameters() if one.requires_grad and id(one) not in moved]
        if left:
            raise BadConfig(
                f"optimizer: {left[0]} and {len(left) - 1} more parameters of the model belong to no optimizer; give "
                "them to one, or freeze them by requires_grad_(False)"
            )
        foreign = len(moved - {id(one) for one in model.parameters()})
        if foreign:
            raise BadConfig(f"optimizer: {foreign} of its parameters are none of the model's; pass model.parameters()")

    @property
    def several(self) -> bool:
        """Whether there is more than one."""
        return len(self.by_name) > 1

    def groups(self) -> Iterator[dict[str, Any]]:
        """Yields the parameter groups of every optimizer."""
        for optimizer in self.by_name.values():
            yield from optimizer.param_groups

    def rates(self) -> list[float]:
        """Returns the learning rate of each group as it is now."""
        return [float(group["lr"]) for group in self.groups()]

    @contextmanager
    def only(self, name: str, model: torch.nn.Module) -> Iterator[None]:
        """Lets gradients flow to the parameters of one of several optimizers alone."""
        if not self.several:
            yield
            return
        own = {id(parameter) for parameter in parameters_of(self.by_name[name])}
        others = [one for one in model.parameters() if one.requires_grad and id(one) not in own]
        for parameter in others:
            parameter.requires_grad_(False)
        try:
            yield
        finally:
            for parameter in others:
                parameter.requires_grad_(True)

    def set_rates(self, factor: float | Mapping[str, float]) -> None:
        """Sets each group's rate to its base rate times the factor, or times the one of its `name`.

        Raises BadConfig for a group without a factor in the schedule, and for a factor of no group.
        """
        unused = set(factor) if isinstance(factor, Mapping) else set()
        for group, base in zip(self.groups(), self.base_rates, strict=True):
            if isinstance(factor, Mapping):
                name = str(group.get("name", ""))
                if not name and name not in factor:
                    raise BadConfig(
                        f"lr_factor: found factors of {sorted(factor)} by name, but a parameter group has no name; "
                        'give each one: {"params": …, "name": "body"}'
                    )
                if name not in factor:
                    raise BadConfig(f"lr_factor: found factors of {sorted(factor)}, none of parameter group {name!r}")
                unused.discard(name)
                group["lr"] = base * factor[name]
            else:
                group["lr"] = base * factor
        if unused:
            name = sorted(unused)[0]
            near = difflib.get_close_matches(name, [str(group.get("name", "")) for group in self.groups()], n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise BadConfig(f"lr_factor: found a factor of {name!r}, but no parameter group has that name{hint}")

    def clear_gradients(self) -> None:
        """Forgets the gradients of every parameter."""
        for optimizer in self.by_name.values():
            optimizer.zero_grad(set_to_none=True)

    def parts(self) -> dict[str, str]:
        """Returns what each optimizer's state is called among the parts of a checkpoint, by the optimizer's name."""
        return {name: f"optimizer_{name}" if name else "optimizer" for name in self.by_name}

    def state_dicts(self) -> dict[str, Any]:
        """Returns the state of each by the part of a checkpoint that it is."""
        return {part: self.by_name[name].state_dict() for name, part in self.parts().items()}

    def load_state_dicts(self, saved: Mapping[str, Any]) -> None:
        """Loads saved states by part; raises BadConfig for those of other groups."""
        for name, part in self.parts().items():
            load_optimizer(self.by_name[name], saved[part])


def parameters_of(optimizer: torch.optim.Optimizer) -> Iterator[torch.nn.Parameter]:
    """Yields every parameter that an optimizer moves."""
    for group in optimizer.param_groups:
        yield from group["params"]
