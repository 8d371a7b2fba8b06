"""The config.json that `lead export` writes is one LEAD's evaluation can read; what it cannot be told is said."""

from typing import Any

import pytest

from lead_testing.golden_model import golden_json
from lead_trainer.recipes.lead.config_values import from_config_json, load_config, to_config_json
from lead_trainer.recipes.lead.evaluation_config import COMPUTED_BY_LEAD, for_leads_evaluation
from lead_trainer.recipes.lead.rig import SIX_CAMERAS, THREE_CAMERAS

SIX = {"used_cameras": [True] * 6, "image_width": 2304}
WITH_NAVSIM = {"use_navsim_data": True, "LTF": True}
NAVSIM = {**WITH_NAVSIM, "use_carla_data": False}
WAYMO = {"use_carla_data": False, "use_waymo_e2e_data": True, "LTF": True}


def exported(**values: Any) -> tuple[dict[str, Any], list[str]]:
    return for_leads_evaluation(to_config_json(load_config({"use_planning_decoder": True, **values})))


@pytest.mark.parametrize(
    ("values", "root"),
    [
        ({"carla_root": "/data"}, "data/carla_leaderboard2"),
        ({"carla_root": "/data", "used_cameras": [False, True, False]}, "data/carla_leaderboard2"),
        ({"carla_root": "/data", "cameras": [camera.model_dump() for camera in THREE_CAMERAS]}, None),
        ({"carla_root": "/data", **SIX}, "data/carla_leaderboad2_v10"),
        ({"cameras": [camera.model_dump() for camera in SIX_CAMERAS]}, "data/carla_leaderboad2_v10"),
        ({"carla_root": "/mnt/carla_leaderboad2_v8"}, "/mnt/carla_leaderboad2_v8"),
        (NAVSIM, "data/carla_leaderboad2_v12"),
        (WAYMO, "data/carla_leaderboad2_v14"),
        ({**WITH_NAVSIM, "carla_root": "/mnt/carla_leaderboad2_v12"}, "/mnt/carla_leaderboad2_v12"),
        ({**WITH_NAVSIM, "carla_root": "/carla_leaderboard2/carla_leaderboad2_v12"}, "data/carla_leaderboad2_v12"),
        ({**WITH_NAVSIM, "carla_root": "/mnt/carla_leaderboad2_v14"}, "data/carla_leaderboad2_v12"),
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
    assert same_network == load_config({"use_planning_decoder": True, **values, "carla_root": root})


@pytest.mark.parametrize(
    "values",
    [
        {"cameras": [{"position": [0.0, 0.0, 2.0]}] * 3},
        {"image_width": 576, "image_height": 192},
        {**NAVSIM, "image_width": 480, "image_height": 64},
    ],
)
def test_where_lead_has_no_such_rig_it_is_said(values: dict[str, Any]) -> None:
    document, told = exported(carla_root="/data", **values)
    assert document["carla_root"] == "/data"
    assert len(told) == 1 and "LEAD's evaluation has no rig of these cameras" in told[0]


@pytest.mark.parametrize(
    ("values", "key", "trained", "leads"),
    [
        ({"max_speed": 33.0}, "max_speed", 33.0, 25.0),
        ({"target_speed_classes": [0.0, 10.0]}, "target_speed_classes", [0.0, 10.0], [
            0.0, 4.0, 8.0, 10.0, 13.88888888, 16.0, 17.77777777, 20.0,
        ]),
        ({"target_point_scale": [100.0, 50.0]}, "target_point_scale", [100.0, 50.0], [200.0, 50.0]),
        ({"use_next_tp": False}, "use_next_tp", False, True),
        ({**NAVSIM, "max_speed": 25.0, "carla_root": "carla_leaderboad2_v12"}, "max_speed", 25.0, 15.0),
    ],
)  # fmt: skip
def test_what_leads_code_computes_by_itself_is_said_where_the_run_had_other_values(
    values: dict[str, Any], key: str, trained: Any, leads: Any
) -> None:
    assert exported(**values)[1] == [
        f"config.json: {key} is {trained} in training, but LEAD's evaluation takes {leads} from its own code, whatever "
        "the file contains; change it there before these weights are driven"
    ]


def test_weights_without_a_planner_are_said_not_to_drive() -> None:
    (sentence,) = exported(use_planning_decoder=False)[1]
    assert sentence.startswith("use_planning_decoder: false in training") and "export the posttrain stage" in sentence


def test_a_key_that_leads_code_cannot_answer_is_not_in_the_file() -> None:
    """LEAD's TrainingConfig asks itself for every key of the file; `skip_last` ends it where Waymo has a planner."""
    assert "skip_last" not in exported(**WAYMO)[0] and "skip_last" in exported(**NAVSIM)[0]
    assert exported(**WAYMO, use_planning_decoder=False)[0]["skip_last"] == 1


def test_nothing_that_leads_code_computes_has_a_setter() -> None:
    kinds = golden_json("config_defaults")["key_kinds"]
    spelled = {"target_point_scale": "target_points_normalization_constants"}
    assert {spelled.get(key, key) for key in COMPUTED_BY_LEAD} <= set(kinds["properties_not_overridable"])


def test_a_mended_forward_pass_is_named() -> None:
    assert exported(compat={"transposed_radar_sampling": False, "lagging_lr": True})[1] == [
        "compat.transposed_radar_sampling: false in training, so LEAD's evaluation computes other outputs with these "
        "weights"
    ]
    assert exported()[1] == exported(compat="lead")[1] == []


def test_a_past_that_the_planner_reads_is_named_where_there_is_one() -> None:
    waymo = {"use_carla_data": False, "use_waymo_e2e_data": True, "LTF": True, "compat": {"unread_past": False}}
    named = [[line for line in exported(**values)[1] if "compat" in line] for values in (waymo, {"compat": "fixed"})]
    past, radar = ([line.partition(":")[0] for line in lines] for lines in named)
    assert past == ["compat.unread_past"]
    assert radar == ["compat.transposed_radar_sampling, compat.unmasked_radar_padding"]
