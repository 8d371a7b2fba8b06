"""The keys of a config that the engine reads, and their defaults: every recipe's config inherits them.

A recipe sets another default, or another name (`Field(alias=…)`), by declaring a key again. Where one of its own keys
decides what the engine does, it overrides the property that the engine asks.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from lead_trainer.cpu_limit import loader_threads

Count = Annotated[int, Field(ge=1)]
CountOrZero = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0.0)]
PositiveOrZero = Annotated[float, Field(ge=0.0)]
Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]


@dataclass(frozen=True)
class LossScale:
    """How fp16's loss scale begins and moves; the defaults are LEAD's (lead/training/train.py)."""

    initial: float = 1024.0
    growth: float = 2.0
    backoff: float = 0.5
    growth_interval: int = 256  # steps
    largest: float = 65536.0


class TrainingKeys(BaseModel):
    """What the engine must know of a stage, whatever the recipe."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        protected_namespaces=(),
        serialize_by_alias=True,
        validate_default=True,
    )

    seed: int = 0  # of initial weights, order of samples and augmentation
    epochs: Count = 1  # length of the stage
    batch_size: Count = 32  # global: of all processes together

    # --- compute
    precision: str = "auto"  # number format: auto, fp32, bf16 or fp16; auto asks the GPU
    deterministic: bool = False  # the same bits in every run on the same GPUs; slower
    sync_batchnorm: bool = False  # batch norms share statistics among processes
    compile: bool = False  # compiles the model by torch.compile
    async_checkpoints: bool = True  # commits a copy of the state while the next steps run; needs host memory for it
    gradient_checkpointing: bool = False  # recomputes activations in the backward pass; needs the recipe's save_memory
    split_when_out_of_memory: bool = False  # a batch that does not fit into memory is cut into smaller ones
    num_threads: CountOrZero = 0  # loader threads a process; 0: one a core this process may use
    prefetch_factor: Count = 2  # batches ready ahead of the step
    loader: Literal["ring", "process"] = "ring"  # threads, or worker processes of torch's DataLoader
    canonical_nodes: Count = 1  # number of parts of the shards, so that each of as many nodes fetches its own
    use_training_session_cache: bool = True  # keeps shards on the local disk while training
    session_cache_backend: Literal["packed", "diskcache"] = "packed"  # whole shards, or single records

    # --- the step
    gradient_accumulation_steps: Count = 1  # batches an optimizer step
    grad_clip_norm: PositiveOrZero = 0.0  # largest gradient norm; 0: off
    use_grad_clipper: bool = False  # clips to a quantile of the last gradient norms
    grad_quantile: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.99  # of the last gradient norms, the one to clip to
    grad_history_length: Count = 1000  # norms
    ema_decay: Fraction = 0.0  # of an average of the weights; 0: none
    freeze_batchnorm: bool = False  # batch norms keep and use their running statistics
    grad_scaler_init_scale: Positive = 1024.0  # loss scale of fp16 at the start
    grad_scaler_growth_factor: Positive = 2.0  # of the loss scale after an interval without overflow
    grad_scaler_backoff_factor: Positive = 0.5  # of the loss scale after an overflow
    grad_scaler_growth_interval: Count = 256  # steps without overflow before the loss scale grows
    grad_scaler_max_grad_scale: Positive = 65536.0  # largest loss scale

    # --- validation, by a recipe that validates
    validate_every_epochs: CountOrZero = 1  # epochs between validations; 0: at the last alone
    validate_every_steps: CountOrZero = 0  # optimizer steps between validations; 0: by epochs alone
    validation_max_samples: CountOrZero = 0  # 0: all
    best_metric: str = ""  # a mean of the epoch, or val/<metric>; empty: val/loss, without validation loss
    best_is_greatest: bool = False  # the greatest best_metric is the best, not the least
    patience_epochs: CountOrZero = 0  # epochs without a better one after which the stage ends; 0: never

    # --- small runs
    overfit_samples: CountOrZero = 0  # train and validate on the same N samples; 0: off
    max_samples: CountOrZero = 0  # of an epoch; 0: all

    # --- reports
    log_scalars_frequency: Count = 1  # optimizer steps
    log_images_frequency: CountOrZero = 0  # optimizer steps; 0: no pictures
    console_every_steps: CountOrZero = 0  # 0: at epochs' ends alone
    histograms_every_steps: CountOrZero = 0  # of weights and gradients, in the event file; 0: off

    @property
    def number_format(self) -> str:
        """auto | fp32 | bf16 | fp16"""
        return self.precision

    @property
    def loader_threads(self) -> int:
        """How many threads, or processes, load samples in each process."""
        return self.num_threads or loader_threads()

    @property
    def pictures_every_steps(self) -> int:
        """Optimizer steps between pictures; 0: none."""
        return self.log_images_frequency

    @property
    def clip_quantile(self) -> float:
        """The quantile of the last gradient norms to clip to; 0: off."""
        return self.grad_quantile if self.use_grad_clipper else 0.0

    @property
    def average_decay(self) -> float:
        """Of the exponential moving average of the weights; 0: none."""
        return self.ema_decay

    @property
    def saves_memory(self) -> bool:
        """Whether activations are recomputed in the backward pass from the first step on."""
        return self.gradient_checkpointing

    @property
    def loss_scale(self) -> LossScale:
        """Of fp16."""
        return LossScale(
            initial=self.grad_scaler_init_scale,
            growth=self.grad_scaler_growth_factor,
            backoff=self.grad_scaler_backoff_factor,
            growth_interval=self.grad_scaler_growth_interval,
            largest=self.grad_scaler_max_grad_scale,
        )


# Of the keys above, those that do not affect what is learned: they may differ between a checkpoint and a run that
# resumes it.
NOT_LEARNED = frozenset(
    {
        "async_checkpoints", "compile", "console_every_steps", "epochs", "histograms_every_steps", "loader",
        "log_images_frequency", "log_scalars_frequency", "num_threads", "patience_epochs", "prefetch_factor",
        "session_cache_backend", "split_when_out_of_memory", "use_training_session_cache",
    }
)  # fmt: skip


def value_at(values: Mapping[str, Any], key: str) -> Any:
    """Returns the value of a key, one in a section by its path; None where it is not set."""
    section: Any = values
    for name in key.split("."):
        section = section.get(name) if isinstance(section, Mapping) else None
    return section


def values_at(values: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    """Returns the values of those keys that are set, keys in sections by their paths and in their sections."""
    found: dict[str, Any] = {}
    for key in keys:
        *path, name = key.split(".")
        section = value_at(values, ".".join(path)) if path else values
        if isinstance(section, Mapping) and name in section:
            target = found
            for part in path:
                target = target.setdefault(part, {})
            target[name] = section[name]
    return found


def section_of(model: type[BaseModel], path: Sequence[str]) -> type[BaseModel] | None:
    """Returns the class of the section at a path of keys, None where there is no such section."""
    for key in path:
        fields = {field.alias or name: field for name, field in model.model_fields.items()}
        within = fields[key].annotation if key in fields else None
        if not (isinstance(within, type) and issubclass(within, BaseModel)):
            return None
        model = within
    return model


def sections_of(model: type[BaseModel], path: str = "") -> dict[str, type[BaseModel]]:
    """Returns the class of a config and of each of its sections by their paths, its own under ""."""
    found = {path: model}
    for name, field in model.model_fields.items():
        within = field.annotation
        if isinstance(within, type) and issubclass(within, BaseModel):
            key = field.alias or name
            found |= sections_of(within, f"{path}.{key}" if path else key)
    return found


def key_name(model: type[BaseModel], name: str) -> str:
    """Returns the name of a key as users write it: its alias, where it has one."""
    return model.model_fields[name].alias or name


def key_names(model: type[BaseModel]) -> list[str]:
    """Returns the names of every key of a config."""
    return [key_name(model, name) for name in model.model_fields]
