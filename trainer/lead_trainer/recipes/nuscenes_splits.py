"""The scenes of nuScenes' official splits, by number; used by the recipes that read its tables.

Source: nuscenes-devkit 1.2.0, `utils/splits.py` (train, val, mini_train, mini_val).
"""

MINI_VERSION, FULL_VERSION = "v1.0-mini", "v1.0-trainval"
LAST_SCENE = 1110  # the greatest number of a scene
_VAL = "3 12-18 35-36 38-39 92-110 221 268-278 329-332 344-346 519-524 552-565 625-627 629-630 632-638 770-771 775 777-778 780-784 794-800 802 904-917 919-931 962-963 966-969 971-972 1059-1073"  # fmt: skip  # noqa: E501
MINI_TRAIN = frozenset({61, 553, 655, 757, 796, 1077, 1094, 1100})
MINI_VAL = frozenset({103, 916})


def scene_number(scene: str) -> int | None:
    """Returns 61 for `scene-0061`, None for a name of another form."""
    digits = scene.removeprefix("scene-")
    return int(digits) if scene.startswith("scene-") and digits.isdecimal() and digits.isascii() else None


def _numbers(ranges: str) -> frozenset[int]:
    ends = [part.partition("-") for part in ranges.split()]
    return frozenset(number for first, _, last in ends for number in range(int(first), int(last or first) + 1))


VAL = _numbers(_VAL)
