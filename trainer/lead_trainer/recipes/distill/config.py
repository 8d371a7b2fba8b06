"""Every key of the recipe `distill`, under the names and with the defaults of its training guide's flags.

Read by the preparation, the samples, the model and the losses; it holds values, never behaviour. Flags whose name
differs from a key here (`--max-epochs`, `--output-dir`) are spelled in `config_values`. Values come in through
`config_values.load_config`, which knows presets and near matches.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from lead_trainer.contract.training_keys import (
    Count,
    CountOrZero,
    Fraction,
    Positive,
    PositiveOrZero,
    TrainingKeys,
)

Path = Annotated[str, Field(min_length=1)]

CAMERAS = ("cross_left", "front_wide", "cross_right", "front_tele")
FRAMES_PER_CAMERA = 4  # t0 - 0.3 s … t0, 10 Hz
EMBEDDING_WIDTH = 384  # of the teacher's reasoning text
MAX_ACCELERATION = 9.8  # m/s², of a student's action
MAX_CURVATURE = 0.3  # 1/m


@dataclass(frozen=True)
class Horizon:
    """History, horizon and density of a mode; steps of `dt_s` seconds."""

    past: int  # poses, the present one included
    future: int
    dt_s: float


@dataclass(frozen=True)
class ModelSize:
    """The shape of one student; `checkpointing` trades a second forward pass of each layer for its activations."""

    backbone: str  # a timm name
    width: int
    heads: int
    encoder_layers: int
    decoder_layers: int
    checkpointing: bool


HORIZONS = {
    "none": Horizon(past=16, future=64, dt_s=0.1),
    "argoverse2": Horizon(past=50, future=60, dt_s=0.1),
    "nuscenes": Horizon(past=5, future=12, dt_s=0.5),
}
INPUT_TYPES = {"none": "camera", "argoverse2": "vector", "nuscenes": "raster"}
SIZES = {
    "110m": ModelSize("resnet50", 768, 12, 6, 4, checkpointing=False),
    "500m": ModelSize("resnet101", 1024, 16, 16, 14, checkpointing=True),
    "tiny": ModelSize("test_resnet", 64, 4, 1, 1, checkpointing=False),  # for one CPU core
}


class DistillConfig(TrainingKeys):
    """The resolved configuration of one stage of the recipe `distill`."""

    # --- run: names, files, logging
    seed: int = 42  # of initial weights, order of samples and augmentation
    logdir: str = "checkpoints"  # folder of the results
    load_file: str = ""  # model of an earlier run whose weights this one begins with
    save_every: Count = 5  # epochs between the checkpoints that stay
    save_final_only: bool = False  # of all checkpoints only the best stays
    log_action_stats: bool = False  # accelerations and curvatures of the validation

    # --- student
    model: Literal["baseline", "reasoning"]  # reasoning also learns the embedding of the teacher's reasoning text
    model_size: Literal["110m", "500m", "tiny"] = "500m"  # tiny: for one CPU core
    no_unicycle: bool = False  # the student gives x, y, sin and cos of yaw, not accelerations and curvatures
    discrete_actions: bool = False  # the student gives a distribution over bins of each action
    num_action_bins: Annotated[int, Field(ge=2)] = 256  # bins of each action
    label_smoothing: Fraction = 0.1  # of the bins' cross-entropy
    backbone_weights: str = (
        ""  # ImageNet weights of the backbone: a timm file, or store:weights/<file>; never downloaded
    )
    backbone_weights_sha256: str = ""  # of the file's bytes; needed for store:weights/<file>
    freeze_batchnorm: bool = Field(default=False, alias="freeze_bn")  # the backbone keeps its running statistics

    # --- compute
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"  # number format; auto asks the GPU
    split_when_out_of_memory: bool = True  # a batch that does not fit is cut, 4 x 8, then 2 x 16 of a batch of 32
    num_threads: CountOrZero = Field(default=4, alias="num_workers")  # loader threads; 0: one a core
    prefetch_factor: Count = 4  # batches ready ahead of the step

    # --- optimisation
    epochs: Count = 150  # length of the training, unless patience ends it
    best_metric: str = "val/loss"  # a mean of the epoch or of the validation: the lower, the better
    patience_epochs: CountOrZero = Field(
        default=15, alias="patience"
    )  # epochs without a lower best_metric; 0: never stop early
    batch_size: Count = 48  # global: of all processes together
    gradient_accumulation_steps: Count = Field(default=1, alias="accumulation_steps")  # batches an optimizer step
    lr: Positive = 1e-4  # learning rate after warm-up
    weight_decay: PositiveOrZero = 0.02  # of AdamW
    warmup_epochs: CountOrZero = 5  # epochs until lr is reached
    lr_schedule: Literal["cosine", "constant"] = "cosine"  # after the warm-up
    ema: bool = False  # validates and shows an average of the weights
    ema_decay: Fraction = 0.999  # of that average
    grad_clip_norm: PositiveOrZero = Field(default=0.0, alias="grad_clip")  # largest gradient norm; 0: off

    # --- losses
    yaw_weight: PositiveOrZero = 0.3  # of headings in the loss; positions have 1
    reasoning_weight: PositiveOrZero = 0.25  # of the reasoning's embedding in the loss
    reasoning_warmup_epochs: CountOrZero = 20  # epochs until it has its whole weight
    temperature: Positive = 0.07  # of the contrastive loss of embeddings
    gather_negatives: bool = False  # every process contrasts with the embeddings of all
    action_weight: PositiveOrZero = 0.0  # of accelerations and curvatures in the loss; 0: off

    # --- data: where the raw tree lies on this machine, and files below its root
    data_root: Path = "."  # folder of the raw tree of clips
    train_labels: Path = "teacher_labels/train_labels.npz"  # the teacher's labels of the training clips
    val_labels: Path = "teacher_labels/val_labels.npz"  # the teacher's labels of the validation clips
    frames_dir: Path = "extracted_frames"  # folder of pictures
    ego_history_dir: Path = "teacher_labels"  # folder of ego histories
    offline: bool = False  # dummy pictures; without a dataset dummy labels too
    frame_source: Literal["extracted", "stream"] = "extracted"  # pictures of the tree, or of the data set on demand
    teacher: Literal["files", "scripted", "alpamayo_r1"] = "files"  # labels of files, or made in the build
    resolution: Annotated[int, Field(ge=32, le=2048)] = 224  # pixels, height and width
    overfit_samples: CountOrZero = Field(
        default=0, alias="overfit_tiny"
    )  # train and validate on the same N samples; 0: off
    max_samples: CountOrZero = Field(default=0, alias="max_train_samples")  # 0: all
    validation_max_samples: CountOrZero = Field(default=0, alias="max_val_samples")  # 0: all

    # --- benchmarks: another input, other targets
    benchmark: Literal["none", "nuscenes", "argoverse2"] = "none"  # none: the teacher's clips
    input_type: Literal["camera", "raster", "vector"] = "camera"  # what the student sees; follows from benchmark
    num_modes: Literal[1, 6] = 1  # futures that the student predicts
    multimodal_loss: Literal["wta", "nll"] = "wta"  # winner takes all, or likelihood of the mixture
    nuscenes_root: str = ""  # folder of nuScenes
    argoverse2_root: str = ""  # folder of Argoverse 2
    all_agents: bool = False  # argoverse2: trains on every track's windows over time, not on the focal track alone
    nuscenes_version: Path = "v1.0-trainval"  # folder of its tables, such as v1.0-mini
    max_agents: Count = 48  # vector: the nearest ones, the focal one first
    max_polylines: Count = 192  # vector: the nearest map lines
    polyline_points: Annotated[int, Field(ge=2)] = 20  # vector: points of each map line
    vector_radius_m: Positive = 100.0  # vector: metres around the agent that it sees
    raster_pixels: Annotated[int, Field(ge=32, le=1024)] = 224  # height and width
    raster_metres_per_pixel: Positive = 0.25  # raster: its resolution

    @model_validator(mode="after")
    def _check(self) -> Self:
        expected = INPUT_TYPES[self.benchmark]
        if self.input_type != expected:
            raise ValueError(
                f"input_type: found {self.input_type!r} beside benchmark {self.benchmark!r}, expected {expected!r}"
            )
        if self.backbone_weights and self.input_type == "vector":
            raise ValueError("backbone_weights: vectors are read by no backbone; remove the key")
        if self.backbone_weights_sha256 and not self.backbone_weights:
            raise ValueError("backbone_weights_sha256: has no effect without backbone_weights; set that, or remove it")
        if self.action_weight and self.no_unicycle:
            raise ValueError("action_weight: a direct student gives no actions; remove no_unicycle, or action_weight")
        if self.discrete_actions and (self.no_unicycle or self.num_modes > 1):
            raise ValueError("discrete_actions: needs unicycle mode and one mode; remove no_unicycle and num_modes")
        if self.benchmark != "none" and self.model == "reasoning":
            raise ValueError("model: benchmarks hold no reasoning of a teacher; set model=baseline")
        if self.benchmark != "none" and (self.action_weight or self.discrete_actions):
            key, off = ("discrete_actions", "false") if self.discrete_actions else ("action_weight", "0")
            raise ValueError(
                f"{key}: found {getattr(self, key)!r} beside benchmark {self.benchmark!r}, whose targets are positions "
                f"without actions; set {key}={off}"
            )
        if self.all_agents and self.benchmark != "argoverse2":
            raise ValueError(
                f"all_agents: found True beside benchmark {self.benchmark!r}; only argoverse2 has windows of every "
                "track, remove the key"
            )
        return self

    @property
    def average_decay(self) -> float:
        """Of the moving average of the weights; 0: none."""
        return self.ema_decay if self.ema else 0.0

    @property
    def saves_memory(self) -> bool:
        """Whether layers run twice in training: asked for, or by the student's size."""
        return self.gradient_checkpointing or self.size.checkpointing

    @property
    def size(self) -> ModelSize:
        """The shape of the student."""
        return SIZES[self.model_size]

    @property
    def horizon(self) -> Horizon:
        """Steps back and ahead."""
        return HORIZONS[self.benchmark]

    @property
    def unicycle(self) -> bool:
        """Whether actions are integrated to a trajectory."""
        return not self.no_unicycle
