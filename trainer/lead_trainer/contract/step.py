"""What a training step is given and gives back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lead_trainer.contract.checked_parts import BadPart
from lead_trainer.contract.results import refuse_no_scalars
from lead_trainer.contract.training_keys import TrainingKeys

if TYPE_CHECKING:
    import torch
    import torchmetrics

ConfigT = TypeVar("ConfigT", bound=TrainingKeys)

# What is known of the data as a whole (normalisation, class counts, calibration), JSON values by name: computed once,
# when a run begins, the same on every rank, and kept in its checkpoints.
Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Position:
    """Where in a stage a step is; everything counts from 0."""

    step: int = 0  # optimizer steps of the stage before this one
    epoch: int = 0
    step_in_epoch: int = 0
    epoch_steps: tuple[int, ...] = (1,)  # optimizer steps of each epoch of the stage

    @property
    def epochs(self) -> int:
        """Epochs of the stage."""
        return len(self.epoch_steps)

    @property
    def steps(self) -> int:
        """Optimizer steps of the stage."""
        return sum(self.epoch_steps)


@dataclass(frozen=True, kw_only=True)
class StepContext(Generic[ConfigT]):
    """Where a step is and what it may use besides model and batch; the same on every rank but for its device."""

    config: ConfigT
    at: Position = Position()
    micro_batch: int = 0  # of the step, from 0, with accumulation or a batch cut to fit into memory; of a validation
    facts: Facts = field(default_factory=dict)
    device: "torch.device | None" = None  # None: wherever the batch is
    helpers: "torch.nn.Module | None" = None  # the recipe's frozen networks, on the device
    optimizer: str = ""  # whose loss is asked for, where a recipe has several optimizers
    metrics: "Mapping[str, torchmetrics.Metric]" = field(default_factory=dict)  # of this validation

    @property
    def epoch(self) -> int:
        """Epochs done."""
        return self.at.epoch

    @property
    def step(self) -> int:
        """Optimizer steps done."""
        return self.at.step


@dataclass(frozen=True)
class StepOutput:
    """What a recipe's step gives the loop; every tensor is a scalar."""

    loss: "torch.Tensor"
    parts: Mapping[str, "torch.Tensor"] = field(default_factory=dict)  # unscaled losses by their tag
    metrics: Mapping[str, "torch.Tensor"] = field(default_factory=dict)
    outputs: Any = None  # kept only for pictures
    scaled: Mapping[str, "torch.Tensor"] = field(default_factory=dict)  # what `loss` sums, by the tags of `parts`

    def __post_init__(self) -> None:
        """Raises BadPart for what is no scalar tensor by its tag, and for a tag that two values would share."""
        for name in ("parts", "metrics", "scaled"):
            refuse_no_scalars(f"StepOutput.{name}", getattr(self, name))
        taken = {"loss"} | self.parts.keys()
        if twice := sorted({"loss"} & self.parts.keys()) or sorted(taken & self.metrics.keys()):
            raise BadPart(f"StepOutput: the tag {twice[0]!r} is given twice; each value needs a tag of its own")
