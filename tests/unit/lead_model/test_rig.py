"""A tree's cameras are known by LEAD's folder names, or declared; what contradicts them is refused."""

from typing import Any

import pytest
import torch

from lead_trainer.errors import BadConfig
from lead_trainer.recipes.lead.config_values import from_config_json, load_config, to_config_json
from lead_trainer.recipes.lead.network.bev_points import visible_bev
from lead_trainer.recipes.lead.rig import SIX_CAMERAS, THREE_CAMERAS, rig_of

FRONT_AND_BACK = [
    {"width": 640, "height": 384, "fov": 90, "position": [0.4, 0, 2], "rotation": [0, 0, 0]},
    {"width": 640, "height": 384, "fov": 90, "position": [-0.5, 0, 2], "rotation": [0, 0, 180]},
]


@pytest.mark.parametrize(
    ("root", "rig"),
    [
        ("data/expert_debug", THREE_CAMERAS),
        ("/mnt/carla_leaderboard2/", THREE_CAMERAS),
        ("data/carla_leaderboad2_v3", THREE_CAMERAS),
        ("data/carla_leaderboad2_v8", THREE_CAMERAS),
        ("data/carla_leaderboad2_v10", SIX_CAMERAS),
        ("data/mine", ()),
    ],
)
def test_leads_folder_names_tell_the_rig(root: str, rig: tuple[Any, ...]) -> None:
    assert rig_of(root) == rig


def test_a_tree_of_six_cameras_has_pictures_of_their_width() -> None:
    config = load_config({"carla_root": "data/carla_leaderboad2_v10"})
    assert (config.num_used_cameras, config.image_height, config.image_width) == (6, 384, 2304)


def test_a_name_that_lead_does_not_know_keeps_the_default_rig() -> None:
    config = load_config({"carla_root": "data/mine"})
    assert (config.num_used_cameras, config.image_width) == (3, 1152)


def test_declared_cameras_set_number_and_size_and_win_over_the_name() -> None:
    config = load_config({"carla_root": "data/carla_leaderboad2_v10", "cameras": FRONT_AND_BACK})
    assert (config.used_cameras, config.image_height, config.image_width) == ((True, True), 384, 1280)
    smaller = load_config({"cameras": FRONT_AND_BACK, "image_width": 640, "image_height": 192})
    assert smaller.final_image_width == 640


def test_declared_cameras_come_back_from_config_json() -> None:
    config = load_config({"cameras": FRONT_AND_BACK})
    assert load_config(from_config_json(to_config_json(config))) == config


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"carla_root": "data/carla_leaderboad2_v10", "used_cameras": [True] * 3}, "found 3 entries.*rig of 6 cameras"),
        ({"carla_root": "data/carla_leaderboad2_v12"}, "another data set's cameras; set use_navsim_data"),
        ({"carla_root": "data/carla_leaderboad2_v14"}, "another data set's cameras; set use_waymo_e2e_data"),
        (
            {"cameras": FRONT_AND_BACK, "used_cameras": [True] * 3},
            "found 3 entries, expected one for each",
        ),
        ({"cameras": FRONT_AND_BACK, "image_width": 2560}, "image_width: found 2560, but 2 cameras record 1280 pixels"),
        ({"cameras": FRONT_AND_BACK, "image_width": 640}, "image_height: found 384, but 384 x 0.5 pixels are recorded"),
        ({"cameras": [FRONT_AND_BACK[0], {**FRONT_AND_BACK[1], "width": 320}]}, "expected one size"),
        ({"cameras": [{**FRONT_AND_BACK[0], "fov": 180}]}, r"cameras.0.fov: found 180"),
        ({"cameras": [{**FRONT_AND_BACK[0], "focal": 3}]}, r"cameras.0.focal: unknown key"),
        ({"cameras": [{"position": [0, 0]}]}, r"cameras.0.position"),
        ({"cameras": ["front"]}, r"cameras.0"),
    ],
)
def test_what_contradicts_the_rig_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(BadConfig, match=message):
        load_config(values)


def test_bev_pixels_outside_of_a_declared_rigs_view_are_not_trained_on() -> None:
    both = visible_bev(load_config({"cameras": FRONT_AND_BACK, "pixels_per_meter": 2.0}))
    row, column, far = 80, 64, 40  # of the ego, and 20 m, in pixels
    assert both[row, column + far] and both[row, column - far]
    assert not both[row - far, column] and not both[row + far, column]
    front = {"cameras": FRONT_AND_BACK, "used_cameras": [True, False], "pixels_per_meter": 2.0}
    ahead = visible_bev(load_config(front))
    assert ahead[row, column + far] and not ahead[row, column - far]


def test_leads_own_rigs_mask_nothing() -> None:
    for root in ("data/carla_leaderboard2", "data/carla_leaderboad2_v10"):
        assert torch.all(visible_bev(load_config({"carla_root": root})))
