"""The recipe `distill`; `RECIPE` is its entry point, imported on first use: the data stages need no torch."""

from typing import Any


def __getattr__(name: str) -> Any:
    """Returns RECIPE."""
    if name != "RECIPE":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lead_trainer.recipes.distill.recipe import RECIPE

    return RECIPE
