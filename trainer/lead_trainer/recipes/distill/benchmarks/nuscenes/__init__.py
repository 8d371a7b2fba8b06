"""nuScenes prediction: a raster of the last 2 s to 6 s of one vehicle at 2 Hz."""

from typing import Any


def __getattr__(name: str) -> Any:
    """Returns MODE; it needs torch, the preparation alone does not."""
    if name != "MODE":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lead_trainer.recipes.distill.benchmarks.nuscenes.mode import MODE

    return MODE
