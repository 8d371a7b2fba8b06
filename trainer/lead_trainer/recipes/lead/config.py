"""Every key of the recipe `lead`, under LEAD's names and with LEAD's defaults (leaderboard mode).

Read by the preparation, the samples, the model, the losses and the training loop; it holds values, never behaviour.
What follows from other keys is a property here and no key: setting it is an error that names its source.
Values come in through `config_values.load_config`, which knows presets, LEAD's spellings and near matches.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from lead_trainer.contract.training_keys import Count, CountOrZero, Positive, PositiveOrZero, TrainingKeys
from lead_trainer.recipes.lead.compat import Compat
from lead_trainer.recipes.lead.config_checks import STRIDE, check_config
from lead_trainer.recipes.lead.data_sources import CARLA, HORIZON, SOURCES, DataSource, skip_defaults, source_defaults
from lead_trainer.recipes.lead.gpu_names import lead_precision, own_gpu_name
from lead_trainer.recipes.lead.rig import Camera, rig_defaults

Bools = Annotated[tuple[bool, ...], Field(strict=False)]  # lists of YAML and JSON are welcome
Floats = Annotated[tuple[float, ...], Field(strict=False)]
Ints = Annotated[tuple[int, ...], Field(strict=False)]
Strings = Annotated[tuple[str, ...], Field(strict=False)]
Probability = Annotated[float, Field(ge=0.0, le=1.0)]

STAGE_PROJECTS = ("lead_pretrain", "lead_posttrain")  # WandB projects when none is named

# Spelled right on the left, as LEAD spells it on the right.
SPELLINGS: dict[str, str] = {
    "use_sensor_perturbation": "use_sensor_perburtation",
    "use_sensor_perturbation_prob": "use_sensor_perburtation_prob",
    "bev_features_channels": "bev_features_chanels",
    "iou_threshold_nms": "iou_treshold_nms",
}
ALIASES: dict[str, str] = {**SPELLINGS, "assigned_cpu_cores": "num_threads"}  # LEAD's loader has a process a core


class LeadConfig(TrainingKeys):
    """The resolved configuration of one stage of the recipe `lead`."""

    # --- run: names, files, logging
    id: str = "Experiment 1"  # name of the experiment, shown in W&B's notes
    description: str = "TFv6"  # name of the run in W&B
    logdir: str | None = None  # folder of the results
    load_file: str | None = None  # model_<epoch>.pth of an earlier stage
    continue_failed_training: bool = False  # LEAD's spelling of resume=auto
    epoch_checkpoints_keep: Ints = ()  # epochs, from 0, at whose end the model file of the one before stays in logdir
    save_model_checkpoint: bool = True  # always true: a run without checkpoints could not resume
    log_images_frequency: CountOrZero = 100  # optimizer steps; 0: no pictures
    visualize_training: bool = True  # draws pictures of predictions
    log_wandb: bool = False  # shows the run in W&B, as wandb_mode=online does
    wandb_id: str | None = None  # of the run in W&B; empty: follows from the run
    wandb_resume: Literal["never", "allow", "must", "auto"] = "never"  # what W&B does with a run of that id
    wandb_project_name: str = ""  # empty: lead_pretrain or lead_posttrain

    # --- compute
    precision: Literal["auto", "fp32", "bf16", "fp16", "lead"] = "auto"  # lead: by LEAD's table of GPU names
    gpu_name: str = ""  # for that table; empty: the name the driver gives
    channel_last: bool = True  # keeps pictures and their features channels last in memory, which is faster
    gradient_checkpointing: bool = False  # always false: this network keeps its activations
    use_zero_redundancy: bool = False  # always false: every process holds the whole optimizer state
    prefetch_factor: Count = 8  # batches ready ahead of the step

    # --- optimisation
    epochs: Count = 31  # length of the stage
    batch_size: Count = 64  # global: of all processes together
    lr: Positive = 3e-4  # learning rate after warm-up
    weight_decay: PositiveOrZero = 0.01  # of AdamW
    use_cosine_annealing_with_restarts: bool = True  # false: one cosine over all epochs
    lr_warmup_steps: CountOrZero = 0  # optimizer steps until lr is reached
    grad_quantile: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.99  # of the last gradient norms, the one to clip to
    ema_decay: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0  # of an average of the weights; 0: none

    # --- data: tree, collections, caches
    carla_root: str = "data/carla_leaderboard2"  # folder of the raw CARLA data
    use_carla_data: bool = True  # trains on CARLA routes
    carla_num_samples: int = -1  # of an epoch; -1: all
    use_navsim_data: bool = False  # trains on NavSim
    navsim_data_root: str = "data/navsim_training_cache/trainval"  # folder of NavSim's feature cache
    navsim_num_samples: int = -1  # of an epoch; -1: all
    navsim_num_bev_semantic_classes: Count = 7  # classes of the BEV head on NavSim
    navsim_num_bb_classes: Count = 1  # classes of boxes on NavSim
    use_waymo_e2e_data: bool = False  # trains on Waymo-E2E
    waymo_e2e_training_data_root: str = "data/waymo_open_dataset_end_to_end_camera_v_1_0_0_training"  # its frames
    waymo_e2e_num_training_samples: int = -1  # of an epoch; -1: all
    waymo_e2e_subsample_factor: Count = 5  # an epoch draws one frame of so many, where the number of samples is not set
    schedule_carla_num_samples: bool = False  # CARLA's share of a batch falls from 5/8 to 0 over the epochs
    source_dataset: Literal["", "carla", "navsim", "waymo_e2e"] = ""  # of a cache, where a config uses several
    hold_out_town13_routes: bool = False  # leaves routes of Town13 out of training
    randomize_route_order: bool = False  # always false: routes keep one order
    use_persistent_cache: bool = True  # always true: training reads a built cache
    training_png_compression_level: Annotated[int, Field(ge=0, le=9)] = 6  # always 6: caches keep pictures as recorded
    load_bev_3rd_person_images: Literal[False] = False  # always false: no recipe reads them
    data_save_freq: Count = 5  # simulator steps between saved frames
    carla_fps: Count = 20  # simulator steps a second

    # --- validation; LEAD has none
    validation_fraction: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0  # of the routes, chosen by their names
    validation_towns: Strings = ()  # all routes with one of these in their path, for example Town13

    # --- sensors and the BEV window (ego frame: x forward, y right, metres)
    cameras: Annotated[tuple[Camera, ...], Field(strict=False)] = ()  # of another rig, left to right; see rig
    used_cameras: Bools = (True, True, True)  # which cameras the model sees, left to right
    image_height: Count = 384  # pixels; smaller than recorded: pictures and their labels are resized
    image_width: Count = 1152  # pixels, of all cameras side by side, before the choice of cameras
    pixels_per_meter: Positive = 4.0  # resolution of the BEV window
    min_x_meter: int = -32  # rear end of the BEV window
    max_x_meter: int = 64  # front end of the BEV window
    min_y_meter: int = -40  # left end of the BEV window
    max_y_meter: int = 40  # right end of the BEV window
    training_used_lidar_steps: Count = 10  # newest simulator steps whose LiDAR points are used
    hist_max_per_pixel: Annotated[int, Field(ge=1, le=255)] = 5  # points; counts are stored in 8 bits
    min_height_lidar: float = -4.0  # metres; lower LiDAR points are left out
    max_height_lidar: float = 10.0  # metres; higher LiDAR points are left out
    use_radars: bool = True  # reads the radars
    num_radar_sensors: Count = 4  # radars of the rig
    num_radar_points_per_sensor: Count = 75  # points kept of each radar
    use_past_positions: bool = False  # the planner sees past positions (Waymo-E2E)
    use_past_speeds: bool = False  # the planner sees past speeds (Waymo-E2E)
    num_past_samples_used: CountOrZero = 0  # past positions and speeds that it sees

    # --- augmentation
    use_sensor_perburtation: bool = True  # also trains on the recorded view that is shifted and turned
    use_sensor_perburtation_prob: Probability = 0.5  # how often a sample is that view
    use_color_aug: bool = True  # changes pictures' colors at random
    use_color_aug_prob: Probability = 0.2  # how often each change of colors is made

    # --- labels: boxes, BEV, radar
    detect_boxes: bool = True  # trains the box detector
    max_num_bbs: Count = 90  # boxes of a sample at most
    min_z: float = -4.0  # metres; boxes below are no labels
    max_z: float = 4.0  # metres; boxes above are no labels
    vehicle_min_num_lidar_points: int = 1  # a vehicle with fewer points, and fewer pixels than next, is no label
    vehicle_min_num_visible_pixels: int = 1  # see vehicle_min_num_lidar_points
    pedestrian_min_num_lidar_points: int = 5  # a pedestrian with fewer points, and fewer pixels than next, is no label
    pedestrian_min_num_visible_pixels: int = 15  # see pedestrian_min_num_lidar_points
    parking_vehicle_min_num_lidar_points: int = 3  # the same of parked vehicles
    parking_vehicle_min_num_visible_pixels: int = 5  # the same of parked vehicles
    data_bb_static_types_white_list: Strings = (
        "static.prop.constructioncone",
        "static.prop.trafficwarning",
    )  # they are boxes
    car_open_door_extra_width: float = 1.2  # metres, full width
    scale_pedestrian_bev_semantic_size: Positive = (
        2.5  # factor by which BEV labels draw pedestrians and cyclists larger
    )
    pedestrian_bev_min_extent: PositiveOrZero = 0.4  # metres, half extent

    # --- labels: planner
    skip_first_pretrain: CountOrZero = 1  # saved frames left out at the start of a route; see skip_defaults
    skip_last_pretrain: CountOrZero = 1  # saved frames left out at the end of a route
    skip_first_posttrain: CountOrZero = 8  # the same with the planner
    skip_last_posttrain: CountOrZero = 8  # the same with the planner
    num_way_points_prediction: Count = 8  # waypoints that the planner predicts
    waypoints_spacing: Count = 5  # simulator steps
    max_distance_future_waypoint: Positive = 10.0  # metres, of other cars' futures, which nothing is trained on
    smooth_route: bool = True  # route points are resampled one metre apart
    num_route_points_smoothing: Count = 20  # route points that are read
    num_route_points_prediction: Count = 10  # route points that the planner predicts
    tp_pop_distance: Positive = 3.25  # metres from a target point at which the next one follows
    use_noisy_tp: bool = False  # target points and positions with the noise of a GPS
    target_speed_classes: Floats = (0.0, 4.0, 8.0, 10.0, 13.88888888, 16.0, 17.77777777, 20.0)  # m/s

    # --- model: backbone and fusion
    image_architecture: str = "resnet34"  # a timm model
    lidar_architecture: str = "resnet34"  # a timm model, of the BEV branch
    backbone_weights: str = (
        ""  # ImageNet weights of the image backbone: a file, or store:weights/<file>; never downloaded
    )
    backbone_weights_sha256: str = ""  # of the file's bytes; needed for store:weights/<file>
    freeze_backbone: bool = False  # the backbone keeps its weights
    LTF: bool = False  # a positional grid instead of LiDAR
    n_layer: Count = 2  # layers of each fusion transformer
    n_head: Count = 4  # attention heads of each fusion transformer
    block_exp: Count = 4  # width of its feed-forward layers, in widths of a token
    embd_pdrop: Probability = 0.1  # dropout of its tokens
    resid_pdrop: Probability = 0.1  # dropout of its residual branches
    attn_pdrop: Probability = 0.1  # dropout of its attention weights
    gpt_linear_layer_init_mean: float = 0.0  # of its linear layers' first weights
    gpt_linear_layer_init_std: PositiveOrZero = 0.02  # of its linear layers' first weights
    gpt_layer_norm_init_weight: float = 1.0  # of its norms' first weights
    bev_features_chanels: Count = 64  # channels of the BEV grid
    bev_down_sample_factor: Count = 4  # BEV pixels a cell of the detection grid
    bev_upsample_factor: Count = 2  # of the last BEV stage before the grid

    # --- model: perception heads
    use_semantic: bool = True  # trains the semantic head of the cameras
    use_depth: bool = True  # trains the depth head of the cameras
    use_bev_semantic: bool = True  # trains the semantic head of the BEV window
    num_semantic_classes: Count = 10  # classes of a camera pixel
    num_bev_semantic_classes: Count = 13  # classes of a BEV pixel
    perspective_downsample_factor: Literal[1] = 1  # always 1: heads predict whole pictures
    deconv_channel_num_0: Count = 128  # channels of the first stage of the camera heads
    deconv_channel_num_1: Count = 64  # channels before their first upsampling
    deconv_channel_num_2: Count = 32  # channels after it
    deconv_scale_factor_0: Count = 4  # 32 over the first upsampling of the camera heads
    deconv_scale_factor_1: Count = 8  # 32 over the second one
    num_bb_classes: Count = 8  # classes of boxes
    num_dir_bins: Count = 12  # bins of a box's direction
    bb_input_channel: Count = 64  # channels of the box heads; as bev_features_chanels
    center_net_global_avg_factor: Literal[False] = False  # always false: each sample's box losses are averaged alone
    top_k_center_keypoints: Count = 100  # strongest peaks that become boxes
    center_net_max_pooling_kernel: Count = 3  # cells among which the strongest peak stays
    bb_confidence_threshold: Probability = 0.3  # less confident boxes are not drawn
    iou_treshold_nms: Probability = 0.2  # of two boxes that overlap more one is drawn

    # --- model: radar detector
    radar_detection: bool = True  # the detector and its loss
    use_radar_detection: bool = True  # its detections are an input of the planner
    num_radar_queries: Count = 20  # objects that the radar detector finds at most
    radar_hidden_dim_tokenizer: Count = 1024  # hidden width of its tokenizer
    radar_token_dim: Count = 256  # width of its tokens
    radar_tf_dim_ff: Count = 1024  # width of its feed-forward layers
    radar_dropout: Probability = 0.1  # dropout of its decoder
    radar_num_heads: Count = 8  # attention heads of its decoder
    radar_num_layers: Count = 4  # layers of its decoder
    radar_hidden_dim_decoder: Count = 1024  # hidden width of its output layers
    radar_sine_features: Count = 128  # sine features of a coordinate; half of radar_token_dim
    radar_classification_loss_weight: PositiveOrZero = 1.0  # of whether a detection is real
    radar_regression_loss_weight: PositiveOrZero = 5.0  # of positions and speeds of detections

    # --- model: planner
    use_planning_decoder: bool = False  # false: the pretrain stage
    predict_target_speed: bool = True  # the planner predicts a target speed
    predict_spatial_path: bool = True  # the planner predicts the route ahead
    predict_temporal_spatial_waypoints: bool = True  # the planner predicts waypoints in time
    transfuser_token_dim: Count = 256  # width of the planner's tokens
    transfuser_num_bev_cross_attention_layers: Count = 6  # layers of the planner
    transfuser_num_bev_cross_attention_heads: Count = 8  # attention heads of the planner
    use_velocity: bool = True  # the planner sees the ego's speed
    use_acceleration: bool = False  # the planner sees the ego's acceleration
    max_acceleration: Positive = 10.0  # m/s^2, divides accelerations
    use_discrete_command: bool = True  # the planner sees the navigation command
    use_tp: bool = True  # the planner sees the target point
    use_previous_tp: bool = True  # the planner sees the target point before it
    use_next_tp: bool = True  # the planner sees the target point after it
    discrete_command_dim: Count = 6  # kinds of navigation commands
    max_speed: Positive = 25.0  # m/s, divides speeds
    target_point_scale: Floats = (200.0, 50.0)  # metres, divides target points

    # --- LEAD's behaviour where it can be mended: `compat: lead` keeps all of it, `compat: fixed` none
    compat: Compat = Compat()  # lead, fixed or switches of LEAD's behaviour; see recipes/lead/compat.py

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
        given = {**source_defaults(renamed), **rig_defaults(renamed), **renamed}
        return {**cls._skips(given), **given}

    @classmethod
    def _skips(cls, given: Mapping[str, Any]) -> dict[str, int]:
        """Returns the skips that follow from the given keys, where they differ from those of default waypoints."""
        default = {key: field.default for key, field in cls.model_fields.items()}
        followed = skip_defaults({**{key: default[key] for key in HORIZON}, **given})
        return {key: frames for key, frames in followed.items() if frames != default[key]}

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_config(self)
        return self

    # --- what the engine asks
    @property
    def number_format(self) -> str:
        """The precision, by LEAD's table of GPU names where it is `lead`."""
        return lead_precision(self.gpu_name or own_gpu_name()) if self.precision == "lead" else self.precision

    @property
    def pictures_every_steps(self) -> int:
        """Optimizer steps between pictures; 0: none."""
        return self.log_images_frequency if self.visualize_training else 0

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
