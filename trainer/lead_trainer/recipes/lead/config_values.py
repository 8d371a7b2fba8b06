"""How values become a `LeadConfig`: presets, LEAD's `config.json`, and errors that name the key and its near matches.

Called by the recipe object, the command line and checks before a run; it reads neither environment nor command line.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lead_trainer.contract.config_values import near_matches
from lead_trainer.contract.keys import Keys
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.lead.batch_shares import batch_shares
from lead_trainer.recipes.lead.compat import Compat
from lead_trainer.recipes.lead.config import ALIASES, STAGE_PROJECTS, LeadConfig
from lead_trainer.recipes.lead.continued_runs import refuse_weights_alone, reject_contradictory_resume_keys
from lead_trainer.recipes.lead.data_sources import KEPT_EPOCHS, kept_epochs, skip_defaults
from lead_trainer.recipes.lead.evaluation_config import for_leads_evaluation
from lead_trainer.recipes.lead.inheritance import INHERITED
from lead_trainer.recipes.lead.run_keys import LOCAL_KEYS, NOT_LEARNED, WEIGHTS_KEYS

PACKAGE = "lead_trainer.recipes.lead"

# Keys of LEAD's config.json that follow from others, with what to set instead.
DERIVED: dict[str, str] = {
    "bucket_collection_path": "carla_root",
    "carla_cache_path": "carla_root",
    "carla_data": "carla_root",
    "carla_leaderboard_mode": "use_carla_data, use_navsim_data and use_waymo_e2e_data",
    "final_image_height": "image_height",
    "final_image_width": "image_width and used_cameras",
    "image_width_before_camera_subselection": "image_width",
    "img_horz_anchors": "image_width",
    "img_vert_anchors": "image_height",
    "is_pretraining": "use_planning_decoder",
    "lidar_height_meter": "min_y_meter and max_y_meter",
    "lidar_height_pixel": "pixels_per_meter",
    "lidar_horz_anchors": "pixels_per_meter",
    "lidar_vert_anchors": "pixels_per_meter",
    "lidar_width_meter": "min_x_meter and max_x_meter",
    "lidar_width_pixel": "pixels_per_meter",
    "mixed_data_training": "use_carla_data, use_navsim_data and use_waymo_e2e_data",
    "need_grad_scaler": "precision",
    "num_available_cameras": "used_cameras",
    "num_used_cameras": "used_cameras",
    "skip_first": "skip_first_pretrain or skip_first_posttrain",
    "skip_last": "skip_last_pretrain or skip_last_posttrain",
    "target_points_normalization_constants": "target_point_scale",
    "target_speeds": "target_speed_classes",
    "use_mixed_precision_training": "precision",
}

# Keys of LEAD's config.json that describe the machine or the moment, or that LEAD itself does not read in training.
WITHOUT_EFFECT: dict[str, str] = {
    "bucket_cap_mb": "DistributedDataParallel keeps its own bucket size",
    "carla_crop_height_type": "pictures are cropped when they are recorded",
    "continue_epoch": "LEAD itself reads it no more and begins at epoch 0; the same command again resumes a run, and "
    "load_file alone begins one from weights",
    "crop_height": "pictures are cropped when they are recorded",
    "force_rebuild_bucket": "buckets are part of the cache, which is made again whenever files or keys change",
    "force_rebuild_data_cache": "a cache is made again whenever files or keys change; remove its folder to force it",
    "gradient_as_bucket_view": "DistributedDataParallel keeps its own way",
    "horizontal_fov_reduction": "pictures keep their sides; declare cameras for a narrower rig",
    "local_rank": "torchrun or the operator sets it",
    "rank": "torchrun or the operator sets it",
    "slurm_job_id": "there is no SLURM here",
    "ssd_cache_path": "session_cache names the folder on a fast disk; in a cluster spec.sessionCache",
    "target_dataset": "the sensor rig follows from carla_root's data; see used_cameras, image_width, image_height",
    "training_session_cache_path": "session_cache names the folder on a fast disk; in a cluster spec.sessionCache",
    "use_kalman_filter_for_gps": "LEAD's evaluation agent reads it; use_noisy_tp trains on noisy target points",
    "visualize_dataset": "lead buckets shows what a dataset holds, visualize_training what the model sees",
    "visualize_failed_scenarios": "lead cache --collection failed, or lead buckets, takes the routes that ended badly",
    "waymo_e2e_test_data_root": "training reads no test split",
    "waymo_e2e_val_data_root": "put that split into the tree and its folder's name into validation_towns, for val/rfm",
    "workers_per_cpu_cores": "the loader has threads; num_threads sets their number",
    "world_size": "torchrun or the operator sets it",
}

# Of those keys, the ones that a user may set but that a config.json holds about another machine or run.
OF_ANOTHER_MACHINE = frozenset({"assigned_cpu_cores", "gpu_name"})

CROPS_SIDES = "horizontal_fov_reduction"

# Keys of LEAD that stay at their default here, with the reason and what to do instead.
REFUSED: dict[str, str] = {
    "carla_fps": "LEAD's data has 20 simulator steps a second; waypoints are cut by it",
    "data_save_freq": "LEAD's data has a frame every 5 simulator steps; waypoints are cut by it",
    "gradient_checkpointing": "this network keeps its activations; a smaller batch_size, or "
    "split_when_out_of_memory=true, needs less memory",
    "max_distance_future_waypoint": "it bounds the futures of other cars, which LEAD stores and trains nothing on",
    "randomize_route_order": "routes keep one order, so that a cache has one digest; samples are shuffled each epoch",
    "save_model_checkpoint": "a run without checkpoints could not resume or be evaluated; keep_last=1 keeps the fewest",
    "training_png_compression_level": "a cache keeps pictures as recorded and label planes in lz4",
    "use_persistent_cache": "training always reads a built cache; it is made once for all runs with these keys",
    "use_zero_redundancy": "every rank holds the whole optimizer state; the models of this recipe are small enough",
}


def load_config(values: Mapping[str, Any], preset: str = "") -> LeadConfig:
    """Returns defaults < preset < `values`, validated; raises BadConfig naming every bad key."""
    return KEYS.config(LeadConfig, values, preset)


def refuse_unsupported(config: LeadConfig) -> None:
    """Raises BadConfig for keys that stay at their default, and for a batch that cannot be mixed."""
    for key, reason in REFUSED.items():
        found, expected = getattr(config, key), LeadConfig.model_fields[key].default
        if found != expected:
            raise BadConfig(f"{key}: found {found!r}, expected {expected!r}; {reason}. Remove the key")
    for key in ("max_samples", "overfit_samples"):
        if getattr(config, key) and config.mixed_data_training:
            keys = ", ".join(source.count_key for source in config.sources)
            raise BadConfig(f"{key}: found {getattr(config, key)} beside several data sets; set {keys} instead")
    batch_shares(config, len(config.sources), config.batch_size, 0, config.canonical_nodes)


def written_out(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns one source with every switch in the place of `compat: lead` and `compat: fixed`."""
    return {**given, "compat": Compat.written_out(given["compat"])} if "compat" in given else given


def from_config_json(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keys a `config.json` (LEAD's or ours) sets; drops those that follow from others or have no effect.

    Raises BadConfig for pictures whose sides were cut: other inputs than ours.
    """
    dropped = WITHOUT_EFFECT.keys() | DERIVED.keys() | OF_ANOTHER_MACHINE
    dropped |= {key for key, followed in skip_defaults(document).items() if document.get(key) == followed}
    if document.get(KEPT_EPOCHS) == list(kept_epochs(document)):
        dropped |= {KEPT_EPOCHS}
    values = {key: value for key, value in document.items() if key not in dropped}
    if document.get(CROPS_SIDES):
        raise BadConfig(f"{CROPS_SIDES}: has no effect here: {WITHOUT_EFFECT[CROPS_SIDES]}; remove it")
    scale = document.get("target_points_normalization_constants")
    if scale:
        values.setdefault("target_point_scale", list(scale[0]))
    if values.get("wandb_project_name") in STAGE_PROJECTS:
        del values["wandb_project_name"]  # a posttrain stage must not inherit the pretrain stage's project
    return values


def to_config_json(config: LeadConfig) -> dict[str, Any]:
    """Returns what `config.json` holds: every key, and the derived keys LEAD's evaluation reads beside them."""
    document = config.model_dump(mode="json")
    for key in sorted(DERIVED):
        if isinstance(getattr(LeadConfig, key, None), property):
            document[key] = getattr(config, key)
    document["image_width_before_camera_subselection"] = config.image_width
    document["target_speeds"] = list(config.target_speed_classes)
    document["target_points_normalization_constants"] = [list(config.target_point_scale)]
    document["wandb_project_name"] = config.wandb_project
    return document


def explained(kind: str, path: Sequence[str]) -> str:
    """Returns an explanation of an unknown key of LEAD's, empty if its near matches are enough."""
    key = ".".join(path)
    if path[:1] == ["compat"] and kind != "extra_forbidden":
        switch = f"{key}: expected true or false" if len(path) > 1 else "compat: expected lead, fixed, or switches"
        return f"{switch}, for example compat.lagging_lr=true"
    if kind != "extra_forbidden":
        return ""
    if len(path) > 1:
        return f"{key}: unknown key{near_matches(path[-1], list(LeadConfig().compat.model_dump()))}"
    if key in DERIVED:
        return f"{key}: follows from other keys and cannot be set; set {DERIVED[key]} instead"
    if key in WITHOUT_EFFECT:
        return f"{key}: has no effect here: {WITHOUT_EFFECT[key]}; remove it"
    return ""


KEYS = Keys[LeadConfig](
    presets=PACKAGE,
    spellings=ALIASES,
    explain=explained,
    check=refuse_unsupported,
    check_begin=refuse_weights_alone,
    respell=reject_contradictory_resume_keys,
    expand=written_out,
    to_document=to_config_json,
    from_document=from_config_json,
    for_evaluation=for_leads_evaluation,
    inherited=INHERITED,
    not_learned=NOT_LEARNED,
    local=LOCAL_KEYS,
    weights=WEIGHTS_KEYS,
)
