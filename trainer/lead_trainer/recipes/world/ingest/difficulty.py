"""How much a scene's pictures change: the order of the curriculum, where the user gives no difficulty of his own."""

from collections.abc import Iterable

import numpy as np

from lead_trainer.recipes.world.ingest.pictures import Picture, thumbnail


def difficulty_of(pictures: Iterable[Picture]) -> float:
    """Returns the mean absolute difference of neighbouring pictures at 64 x 64 pixels, in [0, 1]; 0 for one picture."""
    before, differences = None, []
    for picture in pictures:
        small = thumbnail(picture)
        if before is not None:
            differences.append(float(np.abs(small - before).mean()))
        before = small
    return round(float(np.mean(differences)), 6) if differences else 0.0
