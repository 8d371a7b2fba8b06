"""A tree of other cameras than the config has is refused by name, never squashed into the configured size."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lead_trainer.data.source_tree import FolderTree
from lead_trainer.errors import BadConfig
from lead_trainer.example_worlds.lead.tree import write_example_tree
from lead_trainer.recipes.lead.config_values import load_config
from lead_trainer.recipes.lead.preparation import LeadPreparation
from lead_trainer.recipes.lead.prepare_keys import PreparationKeys
from lead_trainer.recipes.lead.prepare_pictures import refuse_other_rig

TWO_OF_THREE = {"used_cameras": [True, True], "image_width": 768}  # the example tree has three


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("rig") / "mine"
    write_example_tree(root, routes=1, frames=4, seed=0)
    return root


@pytest.mark.parametrize("labels", [True, False])
def test_pictures_that_would_have_to_be_squashed_are_refused(tree: Path, labels: bool) -> None:
    preparation = LeadPreparation()
    heads = {"use_semantic": labels, "use_depth": labels}
    keys = preparation.config_keys({**TWO_OF_THREE, **heads})
    source = FolderTree(tree)
    sample = preparation.scan(source, keys, ["full_pretrain"]).samples[0]
    folder = "semantics" if labels else "rgb"
    message = rf"found 384 x 768, but \S+/{folder}/\S+ was recorded with 384 x 1152, at that width 256 rows; declare"
    with pytest.raises(BadConfig, match=message):
        preparation.record(source, keys, sample)


@pytest.mark.parametrize(
    ("values", "plane", "fits"),
    [
        ({}, (96, 288), True),  # depth is recorded at a quarter of the pictures' size
        ({"image_height": 96, "image_width": 288}, (384, 1152), True),
        ({"image_height": 256}, (384, 1152), True),  # lower rows are left out
        ({}, (95, 288), False),
        ({}, (383, 1152), False),
        ({}, (96, 576), False),  # depth of six cameras
    ],
)
def test_planes_of_fewer_pixels_fit_by_their_shape(values: dict[str, Any], plane: tuple[int, int], fits: bool) -> None:
    keys = PreparationKeys.of(load_config(values))
    if fits:
        refuse_other_rig(np.zeros(plane, np.uint8), keys, "depth/0000.png")
        return
    with pytest.raises(BadConfig, match=r"depth/0000\.png was recorded with"):
        refuse_other_rig(np.zeros(plane, np.uint8), keys, "depth/0000.png")
