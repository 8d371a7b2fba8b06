"""Which scenes train and which validate: nuScenes' official lists, or a seeded choice of whole scenes."""

import hashlib
from collections.abc import Mapping, Sequence

from lead_trainer.errors import BadConfig
from lead_trainer.recipes.nuscenes_splits import (
    FULL_VERSION,
    LAST_SCENE,
    MINI_TRAIN,
    MINI_VAL,
    MINI_VERSION,
    VAL,
    scene_number,
)
from lead_trainer.recipes.world.ingest.scenes import SPLITS, refuse_name


def official_split(scene: str, version: str) -> str:
    """Returns train or val as nuScenes has it, empty where the scene is in no list of this version."""
    number = scene_number(scene)
    if number is None or not 1 <= number <= LAST_SCENE:
        return ""
    if version == MINI_VERSION:
        return "val" if number in MINI_VAL else "train" if number in MINI_TRAIN else ""
    if version == FULL_VERSION:
        return "val" if number in VAL else "train"
    return ""


def seeded_splits(scenes: Sequence[str], val_share: float, seed: int) -> dict[str, str]:
    """Returns train or val by scene; a share of the scenes validates, at least one of two, and one at least trains."""
    ranked = sorted(set(scenes), key=lambda name: hashlib.sha256(f"{seed}/{name}".encode()).digest())
    wanted = round(len(ranked) * val_share) if val_share else 0
    count = min(max(wanted, 1 if val_share else 0), max(0, len(ranked) - 1))
    return {name: SPLITS[number < count] for number, name in enumerate(ranked)}


def splits(scenes: Sequence[str], version: str, chosen: str, val_share: float, seed: int) -> Mapping[str, str]:
    """Returns train or val by scene, as the key `split` asks; raises BadConfig naming a scene that is in no list.

    Raises BadData for a name that is no name of a folder.
    """
    for name in scenes:
        refuse_name(name)
    official = {name: official_split(name, version) for name in scenes}
    unknown = sorted(name for name, split in official.items() if not split)
    if chosen == "official" and unknown:
        raise BadConfig(
            f"data.split: found official, but scene {unknown[0]} is in no list of {version}; set data.split=seeded"
        )
    if chosen == "seeded" or unknown:
        return seeded_splits(scenes, val_share, seed)
    return official
