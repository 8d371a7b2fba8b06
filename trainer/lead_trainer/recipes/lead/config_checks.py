"""Which values of the recipe's keys fit together: every mistake is named before anything is built.

Called by `LeadConfig` once its keys have their types; each check raises ValueError naming keys, found and expected.
"""

from typing import TYPE_CHECKING

from lead_trainer.recipes.lead.data_sources import CARLA, NAVSIM_BEV_CLASSES, WAYMO
from lead_trainer.recipes.lead.prepare_metas import FUTURE_STEPS
from lead_trainer.recipes.lead.rig import check_rig
from lead_trainer.recipes.lead.targets.label_classes import OCCUPANCY_OFFSET, BoxClass, Occupancy

if TYPE_CHECKING:
    from lead_trainer.recipes.lead.config import LeadConfig

STRIDE = 32  # of the last backbone stage
SEMANTIC_CLASSES = 10  # of CARLA's pictures, as LEAD's expert groups them


def check_config(config: "LeadConfig") -> None:
    """Raises ValueError for the first thing that does not fit."""
    check_rig(config.cameras, config.used_cameras, config.image_height, config.image_width)
    for check in (_check_sizes, _check_horizon, _check_couplings, _check_classes, _check_switches, _check_sources):
        check(config)


def _check_sizes(config: "LeadConfig") -> None:
    sizes = {
        "image_height": config.final_image_height,
        "image_width of the used cameras": config.final_image_width,
        "pixels of the BEV window along x": config.lidar_width_pixel,
        "pixels of the BEV window along y": config.lidar_height_pixel,
    }
    for name, size in sizes.items():
        any_size = name.startswith("image") and not config.carla_leaderboard_mode  # real cameras are 270 or 360 high
        if size < STRIDE or (size % STRIDE and not any_size):
            raise ValueError(f"{name}: found {size}, expected a multiple of {STRIDE}, the backbone's stride")
    cameras = config.num_available_cameras
    if config.image_width % cameras:
        raise ValueError(f"image_width: found {config.image_width}, expected a multiple of the {cameras} cameras")
    if len(config.target_point_scale) != 2:
        raise ValueError(f"target_point_scale: found {len(config.target_point_scale)} numbers, expected 2 (x, y)")
    if config.num_route_points_prediction > config.num_route_points_smoothing:
        raise ValueError(
            f"num_route_points_prediction: found {config.num_route_points_prediction}, but no more than "
            f"{config.num_route_points_smoothing} points of a route are read; raise num_route_points_smoothing"
        )
    speeds = config.target_speed_classes
    if list(speeds) != sorted(set(speeds)) or len(speeds) < 2:
        raise ValueError("target_speed_classes: expected at least two speeds in rising order")


def _check_horizon(config: "LeadConfig") -> None:
    """Refuses waypoints beyond what a cache keeps of the future, and beyond the end of a route, where there is none."""
    reach, skipped = config.num_way_points_prediction * config.waypoints_spacing, config.skip_last_posttrain
    if config.use_carla_data and reach >= FUTURE_STEPS:
        raise ValueError(
            f"num_way_points_prediction, waypoints_spacing: the last waypoint is {reach} steps ahead, caches hold "
            f"{FUTURE_STEPS - 1}; lower one of them"
        )
    if config.use_planning_decoder and config.use_carla_data and skipped * config.data_save_freq < reach:
        raise ValueError(
            f"skip_last_posttrain: found {skipped} frames, which are {skipped * config.data_save_freq} steps, but the "
            f"last of {config.num_way_points_prediction} waypoints is {reach} steps ahead (waypoints_spacing); leave "
            "the key out to skip as much as that, or raise it"
        )


def _check_couplings(config: "LeadConfig") -> None:
    """Refuses sizes that fit alone, but not together."""
    upsampling = (STRIDE // config.deconv_scale_factor_0) * (STRIDE // config.deconv_scale_factor_1)
    heads, dim = config.transfuser_num_bev_cross_attention_heads, config.transfuser_token_dim
    for keys, fits, expected in (
        ("deconv_scale_factor_0, deconv_scale_factor_1", upsampling == STRIDE, f"a product of {STRIDE}"),
        ("bb_input_channel", config.bb_input_channel == config.bev_features_chanels, "bev_features_chanels"),
        ("radar_sine_features", 2 * config.radar_sine_features == config.radar_token_dim, "half of radar_token_dim"),
        ("radar_token_dim", config.radar_token_dim % config.radar_num_heads == 0, "a multiple of radar_num_heads"),
        ("radar_token_dim, transfuser_token_dim", (config.radar_token_dim | dim) % 4 == 0, "multiples of 4"),
        ("transfuser_token_dim", dim % heads == 0, "a multiple of transfuser_num_bev_cross_attention_heads"),
        ("center_net_max_pooling_kernel", config.center_net_max_pooling_kernel % 2 == 1, "an odd number of cells"),
    ):
        if not fits:
            found = ", ".join(str(getattr(config, key)) for key in keys.split(", "))
            raise ValueError(f"{keys}: found {found}, expected {expected}")


def _check_classes(config: "LeadConfig") -> None:
    """Refuses heads with fewer classes than the labels of a data set in use have."""
    carla, navsim = config.use_carla_data, config.use_navsim_data
    for key, used, fewest in (
        ("num_semantic_classes", carla and config.use_semantic, SEMANTIC_CLASSES),
        ("num_bev_semantic_classes", carla and config.use_bev_semantic, OCCUPANCY_OFFSET + len(Occupancy)),
        ("num_bb_classes", carla and config.detect_boxes, len(BoxClass)),
        ("navsim_num_bev_semantic_classes", navsim and config.use_bev_semantic, NAVSIM_BEV_CLASSES),
    ):
        if used and getattr(config, key) < fewest:
            raise ValueError(f"{key}: found {getattr(config, key)}, but the labels have {fewest} classes; raise it")


def _check_switches(config: "LeadConfig") -> None:
    """Refuses a value that a switch keeps from having an effect."""
    for switch, on, keys in (
        ("use_grad_clipper=true", config.use_grad_clipper, ("grad_quantile", "grad_history_length")),
        ("precision=lead", config.precision == "lead", ("gpu_name",)),
        ("validation_fraction or validation_towns", config.validates, ("validate_every_epochs",)),
        ("validation_fraction or validation_towns", config.validates, ("validate_every_steps",)),
        ("validation_fraction or validation_towns", config.validates, ("validation_max_samples",)),
        ("best_metric", bool(config.best_metric), ("best_is_greatest",)),
        ("backbone_weights", bool(config.backbone_weights), ("backbone_weights_sha256",)),
    ):
        for key in keys:
            if not on and getattr(config, key) != type(config).model_fields[key].default:
                raise ValueError(f"{key}: found {getattr(config, key)!r}, which has an effect only with {switch}")


def _check_sources(config: "LeadConfig") -> None:
    if not config.sources:
        raise ValueError("use_carla_data, use_navsim_data, use_waymo_e2e_data: all are false, expected at least one")
    real = [source.use_key for source in config.sources if source is not CARLA]
    if real and not config.LTF and not config.source_dataset:
        raise ValueError(f"LTF: found false, but {real[0]} is true and its data has no LiDAR; set LTF to true")
    if real and config.use_radars and (config.radar_detection or config.use_radar_detection):
        raise ValueError(
            f"radar_detection, use_radar_detection: found {config.radar_detection}, {config.use_radar_detection}, but "
            f"{real[0]} is true and its data has no radar; set both to false"
        )
    if real and config.use_carla_data and config.hold_out_town13_routes:
        raise ValueError(
            f"hold_out_town13_routes: found true, but {real[0]} is true and buckets beside real data hold no town out; "
            "set it to false, also where the stage of load_file had it true; validation_towns=[Town13] beside a "
            "validation_fraction, which holds out routes of every data set, keeps Town13 out of training"
        )
    if config.schedule_carla_num_samples and (len(config.sources) != 2 or not config.use_carla_data):
        raise ValueError("schedule_carla_num_samples: needs use_carla_data and exactly one real data set beside it")
    unread = config.compat.unread_past and WAYMO in config.sources  # LEAD's mixes have such encoders, and ask none
    if (config.use_past_positions or config.use_past_speeds) and set(config.sources) != {WAYMO} and not unread:
        raise ValueError(
            "use_past_positions, use_past_speeds: only Waymo-E2E records them; train on it alone, or leave "
            "compat.unread_past true where other data are beside it"
        )
    past = config.num_past_samples_used * (config.use_past_positions or config.use_past_speeds)
    status = config.use_velocity + config.use_acceleration + config.use_discrete_command
    if past and config.use_planning_decoder and config.compat.unread_past and status != 1:
        raise ValueError(
            f"use_velocity, use_acceleration, use_discrete_command: found {status} of them true, but LEAD's planner, "
            "which does not read the past that it is given, runs with exactly one; keep one, or set compat.unread_past "
            "to false"
        )
    points = config.use_tp or config.use_previous_tp or config.use_next_tp
    if real and (points or config.predict_spatial_path or config.predict_target_speed):
        raise ValueError(f"use_tp, predict_spatial_path, predict_target_speed: {real[0]} is true and has none of them")
