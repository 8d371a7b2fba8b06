"""Every key is known, every mistake is named, and LEAD's own config.json comes in."""

from dataclasses import fields

import pytest

from lead_testing.golden_model import golden_json
from lead_trainer.contract.config_values import names_in
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.config_values import PACKAGE, from_config_json, load_config, to_config_json
from lead_trainer.recipes.lead.inheritance import INHERITED, OWN
from lead_trainer.recipes.lead.prepare_keys import PreparationKeys
from lead_trainer.recipes.lead.recipe import lead_schedule


@pytest.mark.parametrize("stage", ["pretrain_default", "posttrain_default", "posttrain_overridden"])
def test_leads_config_json_comes_in_and_goes_out_unchanged(stage: str) -> None:
    document = golden_json("config_defaults")[stage]["values"]
    ours = to_config_json(load_config({**from_config_json(document), "compat": "lead"}))
    assert {key: ours[key] for key in ours.keys() & document.keys()} == {
        key: document[key] for key in ours.keys() & document.keys()
    }
    assert len(ours.keys() & document.keys()) > 150


def test_defaults_are_leads() -> None:
    document = golden_json("config_defaults")["pretrain_default"]["values"]
    ours = to_config_json(LeadConfig())
    differing = {key for key in ours.keys() & document.keys() if ours[key] != document[key]}
    assert differing == {"batch_size", "compile", "logdir"}


def test_our_config_json_reads_back_the_same() -> None:
    config = load_config({"compat": "lead", "seed": 3, "used_cameras": [False, True, False]}, "demo")
    assert load_config(from_config_json(to_config_json(config))) == config


def test_a_config_json_of_leads_later_code_reads_without_what_concerns_other_programs() -> None:
    later = {
        "training_session_cache_path": "/scratch/1", "bucket_cap_mb": 256, "gradient_as_bucket_view": False,
        "horizontal_fov_reduction": 0, "use_kalman_filter_for_gps": True, "radar_detection": False,
        "use_radar_detection": False, "rank": 0,
    }  # fmt: skip
    config = load_config({**from_config_json(later), "compat": "lead"})
    assert not config.radar_detection
    with pytest.raises(BadConfig, match=r"horizontal_fov_reduction: .*remove it"):
        load_config({**from_config_json({**later, "horizontal_fov_reduction": 50}), "compat": "lead"})


REAL = {"use_navsim_data": True, "LTF": True}


def test_models_of_the_ends_of_cycles_are_kept_with_real_data() -> None:
    assert load_config({}).epoch_checkpoints_keep == ()
    assert load_config(REAL).epoch_checkpoints_keep == (13, 29)
    assert load_config({**REAL, "epochs": 31}).epoch_checkpoints_keep == (7, 15)
    assert load_config({**REAL, "epochs": 7}).epoch_checkpoints_keep == ()
    assert load_config({**REAL, "use_cosine_annealing_with_restarts": False}).epoch_checkpoints_keep == ()
    assert load_config({**REAL, "epoch_checkpoints_keep": []}).epoch_checkpoints_keep == ()
    leads = (7, 15, 31, 63, 127, 255, 511)
    assert load_config({**REAL, "compat": "lead"}).epoch_checkpoints_keep == leads


@pytest.mark.parametrize("epochs", [20, 31, 61, 100])
def test_a_kept_model_was_trained_with_a_low_rate_that_rises_after_it(epochs: int) -> None:
    config, steps = load_config({**REAL, "epochs": epochs}), 50
    schedule = lead_schedule(config, steps, epochs)
    for kept in config.epoch_checkpoints_keep:
        after = [schedule(step) for step in range(kept * steps, (kept + 1) * steps)]
        assert schedule(kept * steps - 1) < 0.12 and max(after) > 0.95, kept


def test_another_number_of_epochs_has_other_kept_models_than_the_config_it_was_read_from() -> None:
    document = to_config_json(load_config(REAL))
    assert load_config({**from_config_json(document), "epochs": 100}).epoch_checkpoints_keep == (11, 23, 49)


@pytest.mark.parametrize(
    ("values", "skips"),
    [
        ({}, (1, 8, 8)),
        ({"num_way_points_prediction": 10}, (1, 10, 10)),
        ({"num_way_points_prediction": 4, "waypoints_spacing": 6}, (1, 4, 5)),
        ({"num_way_points_prediction": 4, "skip_first_posttrain": 2, "skip_last_posttrain": 6}, (1, 2, 6)),
        ({"use_carla_data": False, "use_navsim_data": True, "LTF": True}, (1, 8, 16)),
        ({"use_carla_data": False, "use_waymo_e2e_data": True, "LTF": True}, (1, 8, 20)),
        ({"use_navsim_data": True, "LTF": True}, (8, 8, 16)),
        ({"use_navsim_data": True, "LTF": True, "num_way_points_prediction": 6}, (6, 6, 12)),
        ({"use_waymo_e2e_data": True, "LTF": True}, (10, 10, 20)),
    ],
)
def test_as_many_frames_are_skipped_as_waypoints_need(values: dict[str, object], skips: tuple[int, int, int]) -> None:
    config = load_config(values)
    assert (config.skip_first_pretrain, config.skip_first_posttrain, config.skip_last_posttrain) == skips


def test_the_past_is_an_input_of_waymo_alone() -> None:
    waymo = {"use_waymo_e2e_data": True, "LTF": True}
    alone, mixed = load_config({**waymo, "use_carla_data": False}), load_config(waymo)
    assert (alone.use_past_positions, alone.use_past_speeds, alone.num_past_samples_used) == (True, True, 6)
    assert (mixed.use_past_positions, mixed.use_past_speeds, mixed.num_past_samples_used) == (False, False, 0)
    for values in ({"compat": {"unread_past": False}, **waymo}, {"use_navsim_data": True, "LTF": True}):
        with pytest.raises(BadConfig, match="only Waymo-E2E records them; train on it alone"):
            load_config({**values, "use_past_positions": True})


@pytest.mark.parametrize("preset", names_in(PACKAGE))
def test_every_preset_is_valid(preset: str) -> None:
    assert isinstance(load_config({}, preset), LeadConfig)


BAD = [
    ({"n_leyer": 2}, "n_leyer: unknown key; did you mean n_layer?"),
    ({"skip_first": 3}, "skip_first: follows from other keys .*skip_first_pretrain"),
    ({"grad_quantile": 0.9}, "grad_quantile: found 0.9, which has an effect only with use_grad_clipper=true"),
    ({"validate_every_steps": 5}, "validate_every_steps: found 5, which has an effect only with validation_fraction"),
    ({"force_rebuild_bucket": True}, "force_rebuild_bucket: has no effect here: buckets are part of .*; remove it"),
    ({"deconv_scale_factor_0": 8}, "deconv_scale_factor_0, deconv_scale_factor_1: found 8, 8, expected"),
    (
        {"skip_last_posttrain": 7, "use_planning_decoder": True},
        "skip_last_posttrain: found 7 frames, which are 35 steps, but the last of 8 waypoints is 40 .*raise",
    ),
    (
        {"use_navsim_data": True, "LTF": True, "hold_out_town13_routes": True},
        r"hold_out_town13_routes: found true, but use_navsim_data is true .*validation_towns=\[Town13\]",
    ),
    ({"use_navsim_data": True}, "LTF: found false, but use_navsim_data is true and its data has no LiDAR"),
    ({"lr": "fast"}, "lr: found 'fast'; input should be a valid number"),
    ({"lr": -1.0}, "lr: found -1.0; input should be greater than 0"),
    ({"image_height": 100}, "image_height: found 100, expected a multiple of 32"),
    ({"compat": {"bf16_label": True}}, "compat.bf16_label: unknown key; did you mean bf16_labels?"),
    ({"use_sensor_perturbation": True, "use_sensor_perburtation": False}, "use_sensor_perburtation is given twice"),
    ({"epochs": True}, "epochs: found True; input should be a valid integer"),
    ({"num_bb_classes": 7}, "num_bb_classes: found 7, but the labels have 8 classes; raise it"),
    ({"num_semantic_classes": 9}, "num_semantic_classes: found 9, but the labels have 10 classes"),
    ({"num_bev_semantic_classes": 12}, "num_bev_semantic_classes: found 12, but the labels have 13 classes"),
    ({"hist_max_per_pixel": 256}, "hist_max_per_pixel: found 256; input should be less than or equal to 255"),
    ({"used_cameras": [False, False, False]}, "found 0, expected a multiple of 32"),
]


@pytest.mark.parametrize(("values", "message"), BAD)
def test_a_mistake_is_named_with_its_remedy(values: dict[str, object], message: str) -> None:
    with pytest.raises(BadConfig, match=message):
        load_config(values)


def test_correct_spellings_are_accepted() -> None:
    assert load_config({"use_sensor_perturbation": False}).use_sensor_perburtation is False
    assert load_config({"bev_features_channels": 32}, "demo").bev_features_chanels == 32


def test_an_unknown_preset_is_named_with_near_matches() -> None:
    with pytest.raises(BadConfig, match=r"preset: found 'tini', expected one of .*did you mean tiny"):
        load_config({}, "tini")


def test_a_posttrain_stage_does_not_inherit_the_pretrain_project() -> None:
    pretrain = to_config_json(LeadConfig())
    config = load_config({**from_config_json(pretrain), "use_planning_decoder": True})
    assert config.wandb_project == "lead_posttrain"


def test_every_key_is_either_taken_over_from_load_file_or_a_decision_of_each_stage() -> None:
    assert set(LeadConfig.model_fields) == INHERITED | OWN
    assert not INHERITED & OWN


def test_stages_that_inherit_share_their_cache() -> None:
    follows_from_the_data_sets = {"carla_leaderboard_mode"}
    assert {field.name for field in fields(PreparationKeys)} - follows_from_the_data_sets <= INHERITED


@pytest.mark.parametrize(
    "key",
    ["logdir", "seed", "wandb_id", "description", "batch_size", "epochs", "continue_failed_training", "carla_root"],
)
def test_what_leads_users_lost_runs_by_is_not_inherited(key: str) -> None:
    assert key in OWN


@pytest.mark.parametrize("key", ["hold_out_town13_routes", "validation_towns", "validation_fraction"])
def test_routes_that_one_stage_holds_out_the_next_one_does_too(key: str) -> None:
    assert key in INHERITED
