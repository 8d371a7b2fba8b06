"""Which scenes of nuScenes belong to which split of the prediction challenge.

Source: nuscenes-devkit 1.2.0, `utils/splits.py` and `eval/prediction/splits.py`: of the training scenes in order the
first 200 are `train_val`, the rest `train`.
"""

from lead_trainer.errors import BadData

MINI_VERSION = "v1.0-mini"
LAST_TRAIN_VAL = 300  # the 200th training scene's number
_VAL = "3 12-18 35-36 38-39 92-110 221 268-278 329-332 344-346 519-524 552-565 625-627 629-630 632-638 770-771 775 777-778 780-784 794-800 802 904-917 919-931 962-963 966-969 971-972 1059-1073"  # fmt: skip  # noqa: E501
_MINI_VAL = (103, 916)


def split_of(scene: str, version: str) -> str:
    """Returns train, train_val or val for a scene such as `scene-0061`; of the mini set train or val."""
    number = _number(scene)
    if version == MINI_VERSION:
        return "val" if number in _MINI_VAL else "train"
    if number in VAL:
        return "val"
    return "train_val" if number <= LAST_TRAIN_VAL else "train"


def _number(scene: str) -> int:
    digits = scene.removeprefix("scene-")
    if not digits.isdigit():
        raise BadData(f"scene {scene!r} has no number; expected a name such as scene-0061")
    return int(digits)


def _numbers(ranges: str) -> frozenset[int]:
    ends = [part.partition("-") for part in ranges.split()]
    return frozenset(number for first, _, last in ends for number in range(int(first), int(last or first) + 1))


VAL = _numbers(_VAL)
