"""What a stage takes over from the `config.json` beside `load_file`, and what it decides for itself.

LEAD takes over every key, and its users lost runs by that: a posttrain stage wrote into the folder of its pretrain
stage, or resumed because that one had. Here each key of `LeadConfig` is in exactly one of the two lists (a test holds
them to it); an inherited key is still overridden by a preset, a file, the environment and the command line.
Read by the command line through the recipe; a manifest's stages inherit nothing, they share `config`.
"""

# The model's parameters and what they mean: weights fit no other values.
ARCHITECTURE = frozenset(
    {
        "image_architecture", "lidar_architecture", "LTF", "n_layer", "n_head", "block_exp",
        "gpt_linear_layer_init_mean", "gpt_linear_layer_init_std", "gpt_layer_norm_init_weight", "embd_pdrop",
        "resid_pdrop", "attn_pdrop", "bev_features_chanels", "bev_down_sample_factor", "bev_upsample_factor",
        "use_semantic", "use_depth", "use_bev_semantic", "num_semantic_classes", "num_bev_semantic_classes",
        "perspective_downsample_factor", "deconv_channel_num_0", "deconv_channel_num_1", "deconv_channel_num_2",
        "deconv_scale_factor_0", "deconv_scale_factor_1", "detect_boxes", "num_bb_classes", "num_dir_bins",
        "bb_input_channel", "use_radars", "radar_detection", "use_radar_detection", "num_radar_sensors",
        "num_radar_points_per_sensor", "num_radar_queries", "radar_hidden_dim_tokenizer", "radar_token_dim",
        "radar_tf_dim_ff", "radar_dropout", "radar_num_heads", "radar_num_layers", "radar_hidden_dim_decoder",
        "radar_sine_features", "radar_classification_loss_weight", "radar_regression_loss_weight",
        "navsim_num_bev_semantic_classes", "navsim_num_bb_classes", "transfuser_token_dim",
        "transfuser_num_bev_cross_attention_layers", "transfuser_num_bev_cross_attention_heads",
        "predict_target_speed", "predict_spatial_path", "predict_temporal_spatial_waypoints",
        "target_speed_classes", "num_way_points_prediction", "waypoints_spacing", "num_route_points_prediction",
        "use_velocity", "use_acceleration", "use_discrete_command", "use_tp", "use_previous_tp", "use_next_tp",
        "discrete_command_dim", "use_past_positions", "use_past_speeds", "num_past_samples_used", "max_speed",
        "max_acceleration", "target_point_scale",
    }
)  # fmt: skip

# How raw data become inputs and labels: with the same values a stage also shares its parent's cache.
INPUT_AND_LABELS = frozenset(
    {
        "cameras", "used_cameras", "image_height", "image_width", "pixels_per_meter", "min_x_meter", "max_x_meter",
        "min_y_meter", "max_y_meter", "training_used_lidar_steps", "hist_max_per_pixel", "min_height_lidar",
        "max_height_lidar", "max_num_bbs", "min_z", "max_z", "vehicle_min_num_lidar_points",
        "vehicle_min_num_visible_pixels", "pedestrian_min_num_lidar_points",
        "pedestrian_min_num_visible_pixels", "parking_vehicle_min_num_lidar_points",
        "parking_vehicle_min_num_visible_pixels", "data_bb_static_types_white_list",
        "car_open_door_extra_width", "scale_pedestrian_bev_semantic_size", "pedestrian_bev_min_extent",
        "skip_first_pretrain", "skip_last_pretrain", "skip_first_posttrain", "skip_last_posttrain",
        "smooth_route", "num_route_points_smoothing", "tp_pop_distance", "use_noisy_tp",
        "max_distance_future_waypoint", "bb_confidence_threshold", "top_k_center_keypoints",
        "center_net_max_pooling_kernel", "iou_treshold_nms", "center_net_global_avg_factor", "compat",
        "use_sensor_perburtation",
    }
)  # fmt: skip

# Which routes are held out: a later stage that trained on them would defeat their purpose.
HELD_OUT = frozenset({"hold_out_town13_routes", "validation_fraction", "validation_towns"})

INHERITED = ARCHITECTURE | INPUT_AND_LABELS | HELD_OUT

# Decisions of each stage.
OWN = frozenset(
    {
        "id", "description", "seed", "logdir", "load_file", "continue_failed_training",
        "epoch_checkpoints_keep", "save_model_checkpoint", "log_scalars_frequency", "log_images_frequency",
        "visualize_training", "log_wandb", "wandb_id", "wandb_resume", "wandb_project_name", "precision",
        "gpu_name", "deterministic", "sync_batchnorm", "compile", "async_checkpoints", "channel_last",
        "use_zero_redundancy",
        "num_threads", "prefetch_factor", "loader", "canonical_nodes", "epochs", "batch_size", "lr", "weight_decay",
        "use_cosine_annealing_with_restarts", "lr_warmup_steps", "grad_clip_norm", "use_grad_clipper",
        "grad_quantile", "grad_history_length", "gradient_accumulation_steps", "ema_decay", "freeze_batchnorm",
        "grad_scaler_init_scale", "grad_scaler_growth_factor", "grad_scaler_backoff_factor",
        "grad_scaler_growth_interval", "grad_scaler_max_grad_scale", "carla_root", "use_carla_data",
        "carla_num_samples", "use_navsim_data", "navsim_data_root", "navsim_num_samples", "use_waymo_e2e_data",
        "waymo_e2e_training_data_root", "waymo_e2e_num_training_samples", "waymo_e2e_subsample_factor",
        "schedule_carla_num_samples", "source_dataset", "randomize_route_order",
        "use_persistent_cache", "use_training_session_cache", "session_cache_backend",
        "training_png_compression_level", "load_bev_3rd_person_images", "data_save_freq", "carla_fps",
        "validate_every_epochs", "validation_max_samples",
        "best_metric", "best_is_greatest", "patience_epochs", "validate_every_steps", "overfit_samples", "max_samples",
        "gradient_checkpointing", "split_when_out_of_memory", "console_every_steps", "histograms_every_steps",
        "use_sensor_perburtation_prob", "use_color_aug", "use_color_aug_prob", "backbone_weights",
        "backbone_weights_sha256", "freeze_backbone", "use_planning_decoder",
    }
)  # fmt: skip

# Decisions of a stage that its successor usually shares: the data, the sizes and the number format.
SHARED_WITH_NEXT = frozenset(
    {
        "carla_root", "use_carla_data", "carla_num_samples", "use_navsim_data", "navsim_data_root",
        "navsim_num_samples", "use_waymo_e2e_data", "waymo_e2e_training_data_root",
        "waymo_e2e_num_training_samples", "waymo_e2e_subsample_factor", "schedule_carla_num_samples", "epochs",
        "batch_size", "gradient_accumulation_steps", "precision", "gpu_name", "deterministic", "sync_batchnorm",
        "max_samples", "split_when_out_of_memory",
    }
)  # fmt: skip
