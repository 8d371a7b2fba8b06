"""The recipe `world`: a latent world model of driving, which predicts the next pictures from pictures and actions.

`RECIPE` is its entry point, imported on first use: preparing data needs no torch.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    """Returns RECIPE."""
    if name != "RECIPE":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lead_trainer.recipes.world.recipe import RECIPE

    return RECIPE
