"""What a recipe's parts return, checked where the engine takes it: a wrong type is named with the part it came from."""

import difflib
from collections.abc import Mapping
from typing import Any, TypeVar

from lead_trainer.contract.checked_parts import BadPart

T = TypeVar("T")


class Named(dict[str, T]):
    """Values by name; asking for a name that is not there raises BadPart with the near match."""

    def __init__(self, what: str, values: Mapping[str, T]) -> None:
        """`what` the values are, for the message: facts, for example."""
        super().__init__(values)
        self.what = what

    def __missing__(self, name: str) -> T:
        near = difflib.get_close_matches(str(name), self, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(map(repr, self)) or 'none'}"
        raise BadPart(f"{self.what}: there is no {name!r}; {hint}")


def returned(recipe: str, part: str, value: Any, *kinds: type, named: str = "") -> Any:
    """Returns a value of one of the kinds; raises BadPart naming recipe, part, what was found and what was expected."""
    if isinstance(value, kinds):
        return value
    expected = named or " or ".join(kind.__name__ for kind in kinds)
    raise BadPart(f"recipe {recipe!r}: {part} returned {type(value).__name__} {short(value)}, expected {expected}")


def short(value: Any) -> str:
    """Returns a value as one short line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def refuse_no_scalars(what: str, values: Any) -> None:
    """Raises BadPart unless `values` is a mapping of tags to tensors with one value each."""
    for tag, value in _by_tag(what, values).items():
        if fault := scalar_fault(value):
            raise BadPart(f"{what}[{tag!r}]: found {fault}, expected a tensor with one value")


def refuse_no_tags(what: str, values: Any) -> None:
    """Raises BadPart unless `values` is a mapping whose keys are texts."""
    _by_tag(what, values)


def _by_tag(what: str, values: Any) -> Mapping[str, Any]:
    if not isinstance(values, Mapping):
        raise BadPart(f"{what}: found a {type(values).__name__}, expected a mapping by tag")
    if others := [tag for tag in values if not isinstance(tag, str)]:
        raise BadPart(f"{what}: found the tag {others[0]!r}, expected a text")
    return values


def scalar_fault(value: Any) -> str:
    """Returns what a value is that is no tensor with one value, empty for one."""
    import torch  # which a recipe may not need to be imported

    if not isinstance(value, torch.Tensor):
        return f"{type(value).__name__} {short(value)}"
    return "" if value.numel() == 1 else f"a tensor of shape {tuple(value.shape)}"
