"""Every key of the recipe `lead`, under LEAD's names and with LEAD's defaults (leaderboard mode).

Read by the preparation, the samples, the model, the losses and the training loop; it holds values, never behaviour.
What follows from other keys is a property here and no key: setting it is an error that names its source.
Values come in through `config_values.load_config`, which knows presets, LEAD's spellings and near matches.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from lead_trainer.recipes.lead.compat import Compat
from lead_trainer.recipes.lead.config_checks import STRIDE, check_config
from lead_trainer.recipes.lead.data_sources import CARLA, HORIZON, SOURCES, DataSource, skip_defaults, source_defaults
from lead_trainer.recipes.lead.rig import Camera, rig_defaults

Bools = Annotated[tuple[bool, ...], Field(strict=False)]  # lists of YAML and JSON are welcome
Floats = Annotated[tuple[float, ...], Field(strict=False)]
Ints = Annotated[tuple[int, ...], Field(strict=False)]
Strings = Annotated[tuple[str, ...], Field(strict=False)]
Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Count = Annotated[int, Field(ge=1)]
CountOrZero = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0.0)]
PositiveOrZero = Annotated[float, Field(ge=0.0)]

STAGE_PROJECTS = ("lead_pretrain", "lead_posttrain")  # WandB projects when none is named

# Spelled right on the left, as LEAD spells it on the right.
SPELLINGS: dict[str, str] = {
    "use_sensor_perturbation": "use_sensor_perburtation",
    "use_sensor_perturbation_prob": "use_sensor_perburtation_prob",
    "bev_features_channels": "bev_features_chanels",
    "iou_threshold_nms": "iou_treshold_nms",
}
ALIASES: dict[str, str] = {**SPELLINGS, "assigned_cpu_cores": "num_threads"}  # LEAD's loader has a process a core


class LeadConfig(BaseModel):
    """The resolved configuration of one stage of the recipe `lead`."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    # --- run: names, files, logging
    id: str = "Experiment 1"
    description: str = "TFv6"
    seed: int = 0  # of initial weights, order of samples and augmentation
    logdir: str | None = None  # folder of the results
    load_file: str | None = None  # model_<epoch>.pth of an earlier stage
    continue_failed_training: bool = False
    epoch_checkpoints_keep: Ints = ()  # epochs, from 0, at whose end the model file of the one before stays in logdir
    save_model_checkpoint: bool = True
    log_scalars_frequency: Count = 1  # optimizer steps
    log_images_frequency: CountOrZero = 100  # optimizer steps; 0: no pictures
    visualize_training: bool = True
    log_wandb: bool = False
    wandb_id: str | None = None
    wandb_resume: Literal["never", "allow", "must", "auto"] = "never"
    wandb_project_name: str = ""  # empty: lead_pretrain or lead_posttrain

    # --- compute
    precision: Literal["auto", "fp32", "bf16", "fp16", "lead"] = "auto"  # lead: by LEAD's table of GPU names
    gpu_name: str = ""  # for that table; empty: the name the driver gives
    deterministic: bool = False
    sync_batchnorm: bool = False
    compile: bool = False
    channel_last: bool = True
    use_zero_redundancy: bool = False
    num_threads: CountOrZero = 0  # loader threads a process; 0: one a core this process may use
    prefetch_factor: Count = 8  # batches ready ahead of the step
    loader: Literal["ring", "process"] = "ring"  # threads, or `num_threads` worker processes of torch's DataLoader

    # --- optimisation
    epochs: Count = 31  # length of the stage
    batch_size: Count = 64  # global: of all processes together
    lr: Positive = 3e-4  # learning rate after warm-up
    weight_decay: PositiveOrZero = 0.01  # of AdamW
    use_cosine_annealing_with_restarts: bool = True  # false: one cosine over all epochs
    lr_warmup_steps: CountOrZero = 0  # optimizer steps until lr is reached
    grad_clip_norm: PositiveOrZero = 0.0  # 0: off
    use_grad_clipper: bool = False  # clips to a quantile of the last gradient norms; writes clipper_<epoch>.pth
    grad_quantile: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.99
    grad_history_length: Count = 1000  # norms
    gradient_accumulation_steps: Count = 1
    ema_decay: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0  # of an average of the weights; 0: none
    freeze_batchnorm: bool = False
    grad_scaler_init_scale: Positive = 1024.0
    grad_scaler_growth_factor: Positive = 2.0
    grad_scaler_backoff_factor: Positive = 0.5
    grad_scaler_growth_interval: Count = 256
    grad_scaler_max_grad_scale: Positive = 65536.0

    # --- data: tree, collections, caches
    carla_root: str = "data/carla_leaderboard2"  # folder of the raw CARLA data
    use_carla_data: bool = True
    carla_num_samples: int = -1  # of an epoch; -1: all
    use_navsim_data: bool = False
    navsim_data_root: str = "data/navsim_training_cache/trainval"
    navsim_num_samples: int = -1
    navsim_num_bev_semantic_classes: Count = 7
    navsim_num_bb_classes: Count = 1
    use_waymo_e2e_data: bool = False
    waymo_e2e_training_data_root: str = "data/waymo_open_dataset_end_to_end_camera_v_1_0_0_training"
    waymo_e2e_num_training_samples: int = -1
    waymo_e2e_subsample_factor: Count = 5  # an epoch draws one frame of so many, where the number of samples is not set
    schedule_carla_num_samples: bool = False  # CARLA's share of a batch falls from 5/8 to 0 over the epochs
    source_dataset: Literal["", "carla", "navsim", "waymo_e2e"] = ""  # of a cache, where a config uses several
    hold_out_town13_routes: bool = False
    randomize_route_order: bool = False
    use_persistent_cache: bool = True
    use_training_session_cache: bool = True
    session_cache_backend: Literal["packed", "diskcache"] = "packed"  # whole shards, or single records
    training_png_compression_level: Annotated[int, Field(ge=0, le=9)] = 6
    load_bev_3rd_person_images: Literal[False] = False
    data_save_freq: Count = 5  # simulator steps between saved frames
    carla_fps: Count = 20

    # --- validation; LEAD has none
    validation_fraction: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0  # of the routes, chosen by their names
    validation_towns: Strings = ()  # all routes with one of these in their path, for example Town13
    validate_every_epochs: Count = 1
    validation_max_samples: CountOrZero = 0  # 0: all
    best_metric: str = ""  # a mean of the epoch, or val/<metric>; empty: val/loss, without validation loss
    best_is_greatest: bool = False
    patience_epochs: CountOrZero = 0  # epochs without a better one after which the stage ends; 0: never

    # --- sensors and the BEV window (ego frame: x forward, y right, metres)
    cameras: Annotated[tuple[Camera, ...], Field(strict=False)] = ()  # of another rig, left to right; see rig
    used_cameras: Bools = (True, True, True)
    image_height: Count = 384  # pixels; smaller than recorded: pictures and their labels are resized
    image_width: Count = 1152  # pixels, of all cameras side by side, before the choice of cameras
    pixels_per_meter: Positive = 4.0
    min_x_meter: int = -32
    max_x_meter: int = 64
    min_y_meter: int = -40
    max_y_meter: int = 40
    training_used_lidar_steps: Count = 10
    hist_max_per_pixel: Annotated[int, Field(ge=1, le=255)] = 5  # points; counts are stored in 8 bits
    min_height_lidar: float = -4.0
    max_height_lidar: float = 10.0
    use_radars: bool = True
    num_radar_sensors: Count = 4
    num_radar_points_per_sensor: Count = 75
    use_past_positions: bool = False
    use_past_speeds: bool = False
    num_past_samples_used: CountOrZero = 0

    # --- augmentation
    use_sensor_perburtation: bool = True
    use_sensor_perburtation_prob: Probability = 0.5
    use_color_aug: bool = True
    use_color_aug_prob: Probability = 0.2

    # --- labels: boxes, BEV, radar
    detect_boxes: bool = True
    max_num_bbs: Count = 90
    min_z: float = -4.0
    max_z: float = 4.0
    vehicle_min_num_lidar_points: int = 1
    vehicle_min_num_visible_pixels: int = 1
    pedestrian_min_num_lidar_points: int = 5
    pedestrian_min_num_visible_pixels: int = 15
    parking_vehicle_min_num_lidar_points: int = 3
    parking_vehicle_min_num_visible_pixels: int = 5
    data_bb_static_types_white_list: Strings = ("static.prop.constructioncone", "static.prop.trafficwarning")
    car_open_door_extra_width: float = 1.2  # metres, full width
    scale_pedestrian_bev_semantic_size: Positive = 2.5
    pedestrian_bev_min_extent: PositiveOrZero = 0.4  # metres, half extent

    # --- labels: planner
    skip_first_pretrain: CountOrZero = 1  # saved frames left out at the start of a route; see skip_defaults
    skip_last_pretrain: CountOrZero = 1
    skip_first_posttrain: CountOrZero = 8
    skip_last_posttrain: CountOrZero = 8
    num_way_points_prediction: Count = 8
    waypoints_spacing: Count = 5  # simulator steps
    max_distance_future_waypoint: Positive = 10.0
    smooth_route: bool = True
    num_route_points_smoothing: Count = 20
    num_route_points_prediction: Count = 10
    tp_pop_distance: Positive = 3.25
    use_noisy_tp: bool = False
    target_speed_classes: Floats = (0.0, 4.0, 8.0, 10.0, 13.88888888, 16.0, 17.77777777, 20.0)  # m/s

    # --- model: backbone and fusion
    image_architecture: str = "resnet34"  # a timm model
    lidar_architecture: str = "resnet34"
    backbone_weights: str = (
        ""  # ImageNet weights of the image backbone: a file, or store:weights/<file>; never downloaded
    )
    backbone_weights_sha256: str = ""  # of the file's bytes; needed for store:weights/<file>
    freeze_backbone: bool = False
    LTF: bool = False  # a positional grid instead of LiDAR
    n_layer: Count = 2
    n_head: Count = 4
    block_exp: Count = 4
    embd_pdrop: Probability = 0.1
    resid_pdrop: Probability = 0.1
    attn_pdrop: Probability = 0.1
    gpt_linear_layer_init_mean: float = 0.0
    gpt_linear_layer_init_std: PositiveOrZero = 0.02
    gpt_layer_norm_init_weight: float = 1.0
    bev_features_chanels: Count = 64
    bev_down_sample_factor: Count = 4  # BEV pixels a cell of the detection grid
    bev_upsample_factor: Count = 2

    # --- model: perception heads
    use_semantic: bool = True
    use_depth: bool = True
    use_bev_semantic: bool = True
    num_semantic_classes: Count = 10
    num_bev_semantic_classes: Count = 13
    perspective_downsample_factor: Literal[1] = 1
    deconv_channel_num_0: Count = 128
    deconv_channel_num_1: Count = 64
    deconv_channel_num_2: Count = 32
    deconv_scale_factor_0: Count = 4
    deconv_scale_factor_1: Count = 8
    num_bb_classes: Count = 8
    num_dir_bins: Count = 12
    bb_input_channel: Count = 64
    center_net_global_avg_factor: Literal[False] = False
    top_k_center_keypoints: Count = 100
    center_net_max_pooling_kernel: Count = 3
    bb_confidence_threshold: Probability = 0.3
    iou_treshold_nms: Probability = 0.2

    # --- model: radar detector
    radar_detection: bool = True  # the detector and its loss
    use_radar_detection: bool = True  # what it finds is told to the planner
    num_radar_queries: Count = 20
    radar_hidden_dim_tokenizer: Count = 1024
    radar_token_dim: Count = 256
    radar_tf_dim_ff: Count = 1024
    radar_dropout: Probability = 0.1
    radar_num_heads: Count = 8
    radar_num_layers: Count = 4
    radar_hidden_dim_decoder: Count = 1024
    radar_sine_features: Count = 128
    radar_classification_loss_weight: PositiveOrZero = 1.0
    radar_regression_loss_weight: PositiveOrZero = 5.0

    # --- model: planner
    use_planning_decoder: bool = False  # false: the pretrain stage
    predict_target_speed: bool = True
    predict_spatial_path: bool = True
    predict_temporal_spatial_waypoints: bool = True
    transfuser_token_dim: Count = 256
    transfuser_num_bev_cross_attention_layers: Count = 6
    transfuser_num_bev_cross_attention_heads: Count = 8
    use_velocity: bool = True
    use_acceleration: bool = False
    max_acceleration: Positive = 10.0  # m/s^2, divides accelerations
    use_discrete_command: bool = True
    use_tp: bool = True
    use_previous_tp: bool = True
    use_next_tp: bool = True
    discrete_command_dim: Count = 6
    max_speed: Positive = 25.0  # m/s, divides speeds
    target_point_scale: Floats = (200.0, 50.0)  # metres, divides target points

    # --- LEAD's behaviour where it can be mended: `compat: lead` keeps all of it, `compat: fixed` none
    compat: Compat = Compat()

    @model_validator(mode="before")
    @classmethod
    def _accept_spellings(cls, values: Any) -> Any:
        """Renames keys that are spelled right to LEAD's names and expands `compat: lead` and `compat: fixed`."""
        if not isinstance(values, dict):
            return values
        renamed: dict[str, Any] = {}
        for key, value in values.items():
            name = ALIASES.get(str(key), str(key))
            if name in renamed:
                raise ValueError(f"{name} is given twice, once spelled {key}; keep one")
            renamed[name] = value
        if "compat" in renamed:
            renamed["compat"] = Compat.written_out(renamed["compat"])
        said = {**source_defaults(renamed), **rig_defaults(renamed), **renamed}
        return {**cls._skips(said), **said}

    @classmethod
    def _skips(cls, said: Mapping[str, Any]) -> dict[str, int]:
        """Returns the skips that follow from what was said, where they are others than with default waypoints."""
        default = {key: field.default for key, field in cls.model_fields.items()}
        followed = skip_defaults({**{key: default[key] for key in HORIZON}, **said})
        return {key: frames for key, frames in followed.items() if frames != default[key]}

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_config(self)
        return self

    # --- derived: stage and data
    @property
    def validates(self) -> bool:
        return bool(self.validation_fraction or self.validation_towns)

    @property
    def sources(self) -> tuple[DataSource, ...]:
        """The data sets a stage trains on, in the order of a batch."""
        return tuple(source for source in SOURCES if getattr(self, source.use_key))

    @property
    def mixed_data_training(self) -> bool:
        return len(self.sources) > 1

    @property
    def carla_leaderboard_mode(self) -> bool:
        return self.sources == (CARLA,)

    @property
    def is_pretraining(self) -> bool:
        return not self.use_planning_decoder

    @property
    def carla_data(self) -> str:
        return f"{self.carla_root}/data"

    @property
    def wandb_project(self) -> str:
        return self.wandb_project_name or STAGE_PROJECTS[self.use_planning_decoder]

    @property
    def skip_first(self) -> int:
        return self.skip_first_pretrain if self.is_pretraining else self.skip_first_posttrain

    @property
    def skip_last(self) -> int:
        return self.skip_last_pretrain if self.is_pretraining else self.skip_last_posttrain

    # --- derived: image
    @property
    def num_available_cameras(self) -> int:
        return len(self.used_cameras)

    @property
    def num_used_cameras(self) -> int:
        return sum(self.used_cameras)

    @property
    def final_image_width(self) -> int:
        return self.image_width // self.num_available_cameras * self.num_used_cameras

    @property
    def final_image_height(self) -> int:
        return self.image_height

    @property
    def img_vert_anchors(self) -> int:
        return self.final_image_height // STRIDE

    @property
    def img_horz_anchors(self) -> int:
        return self.final_image_width // STRIDE

    # --- derived: BEV; width is along x, height along y
    @property
    def lidar_width_meter(self) -> int:
        return self.max_x_meter - self.min_x_meter

    @property
    def lidar_height_meter(self) -> int:
        return self.max_y_meter - self.min_y_meter

    @property
    def lidar_width_pixel(self) -> int:
        return int(self.lidar_width_meter * self.pixels_per_meter)

    @property
    def lidar_height_pixel(self) -> int:
        return int(self.lidar_height_meter * self.pixels_per_meter)

    @property
    def lidar_horz_anchors(self) -> int:
        return self.lidar_width_pixel // STRIDE

    @property
    def lidar_vert_anchors(self) -> int:
        return self.lidar_height_pixel // STRIDE

    @property
    def bev_grid_width(self) -> int:
        return self.lidar_width_pixel // self.bev_down_sample_factor

    @property
    def bev_grid_height(self) -> int:
        return self.lidar_height_pixel // self.bev_down_sample_factor

    # --- derived: heads
    @property
    def detects_radar(self) -> bool:
        """Whether there is a radar detector."""
        return self.use_radars and self.radar_detection and self.use_carla_data

    @property
    def plans_with_radar(self) -> bool:
        """Whether the planner sees what the radar detector finds."""
        return self.detects_radar and self.use_radar_detection

    @property
    def predicts_box_velocity(self) -> bool:
        return self.training_used_lidar_steps > 1
