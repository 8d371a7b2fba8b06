"""The recipe `nuplan`: from cameras and lidar to boxes, map, occupancy and ways of road users, seen from above.

`RECIPE` is its entry point, imported on first use: preparing data needs no torch.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    """Returns RECIPE."""
    if name != "RECIPE":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lead_trainer.recipes.nuplan.recipe import RECIPE

    return RECIPE
