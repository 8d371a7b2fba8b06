"""The recipe `lead`; `RECIPE` is its entry point, imported on first use: writing example data needs no torch."""

from typing import Any


def __getattr__(name: str) -> Any:
    """Returns RECIPE."""
    if name != "RECIPE":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lead_trainer.recipes.lead.recipe import RECIPE

    return RECIPE
