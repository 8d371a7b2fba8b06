"""Argoverse 2 motion forecasting: 5 s of tracks and the vector map to 6 s of the focal track."""

from typing import Any


def __getattr__(name: str) -> Any:
    """Returns MODE; it needs torch, the preparation alone does not."""
    if name != "MODE":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lead_trainer.recipes.distill.benchmarks.argoverse2.mode import MODE

    return MODE
