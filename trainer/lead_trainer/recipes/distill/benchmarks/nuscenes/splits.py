"""Which scenes of nuScenes belong to which split of the prediction challenge.

Source: nuscenes-devkit 1.2.0, `eval/prediction/splits.py`: of the training scenes in order the first 200 are
`train_val`, the rest `train`.
"""

from lead_trainer.errors import BadData
from lead_trainer.recipes.nuscenes_splits import MINI_VAL, MINI_VERSION, VAL, scene_number

LAST_TRAIN_VAL = 300  # the 200th training scene's number


def split_of(scene: str, version: str) -> str:
    """Returns train, train_val or val for a scene such as `scene-0061`; of the mini set train or val."""
    number = scene_number(scene)
    if number is None:
        raise BadData(f"scene {scene!r} has no number; expected a name such as scene-0061")
    if version == MINI_VERSION:
        return "val" if number in MINI_VAL else "train"
    if number in VAL:
        return "val"
    return "train_val" if number <= LAST_TRAIN_VAL else "train"
