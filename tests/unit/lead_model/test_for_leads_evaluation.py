"""The config.json that `lead export` writes is one LEAD's evaluation can read; what it cannot be told is said."""

from typing import Any

import pytest

from lead_trainer.recipes.lead.config_values import from_config_json, load_config, to_config_json
from lead_trainer.recipes.lead.evaluation_config import for_leads_evaluation
from lead_trainer.recipes.lead.rig import SIX_CAMERAS, THREE_CAMERAS

SIX = {"used_cameras": [True] * 6, "image_width": 2304}


def exported(**values: Any) -> tuple[dict[str, Any], list[str]]:
    return for_leads_evaluation(to_config_json(load_config(values)))


@pytest.mark.parametrize(
    ("values", "root"),
    [
        ({"carla_root": "/data"}, "data/carla_leaderboard2"),
        ({"carla_root": "/data", "used_cameras": [False, True, False]}, "data/carla_leaderboard2"),
        ({"carla_root": "/data", "cameras": [camera.model_dump() for camera in THREE_CAMERAS]}, None),
        ({"carla_root": "/data", **SIX}, "data/carla_leaderboad2_v10"),
        ({"cameras": [camera.model_dump() for camera in SIX_CAMERAS]}, "data/carla_leaderboad2_v10"),
        ({"carla_root": "/mnt/carla_leaderboad2_v8"}, "/mnt/carla_leaderboad2_v8"),
    ],
)
def test_the_root_is_one_that_lead_knows_with_these_cameras(values: dict[str, Any], root: str | None) -> None:
    root = root or "data/carla_leaderboard2"
    document, told = exported(**values)
    assert (document["carla_root"], document["carla_data"]) == (root, f"{root}/data")
    trained_on = values.get("carla_root", "data/carla_leaderboard2")
    sentence = f"config.json: carla_root is {root}, by which LEAD knows these cameras; trained on {trained_on}"
    assert told == ([] if root == trained_on else [sentence])
    same_network = load_config(from_config_json(document))
    assert same_network == load_config({**values, "carla_root": root})


@pytest.mark.parametrize(
    "values",
    [
        {"cameras": [{"position": [0.0, 0.0, 2.0]}] * 3},
        {"image_width": 576, "image_height": 192},
    ],
)
def test_where_lead_has_no_such_rig_it_is_said(values: dict[str, Any]) -> None:
    document, told = exported(carla_root="/data", **values)
    assert document["carla_root"] == "/data"
    assert len(told) == 1 and "LEAD's evaluation has no rig of these cameras" in told[0]


def test_a_mended_forward_pass_is_named() -> None:
    assert exported(compat={"transposed_radar_sampling": False, "lagging_lr": True})[1] == [
        "compat.transposed_radar_sampling: false in training, so LEAD's evaluation computes other outputs with these "
        "weights"
    ]
    assert exported()[1] == exported(compat="lead")[1] == []
