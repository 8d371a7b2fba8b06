"""What a recipe's parts return, checked where the engine takes it: a wrong type is named with the part it came from."""

from typing import Any

from lead_trainer.contract.checked_parts import BadPart


def returned(recipe: str, part: str, value: Any, *kinds: type, named: str = "") -> Any:
    """Returns a value of one of the kinds; raises BadPart naming recipe, part, what was found and what was expected."""
    if isinstance(value, kinds):
        return value
    expected = named or " or ".join(kind.__name__ for kind in kinds)
    raise BadPart(f"recipe {recipe!r}: {part} returned {type(value).__name__} {_short(value)}, expected {expected}")


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."
