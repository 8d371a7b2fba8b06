"""Every key of the recipe `world`; it holds values, never behaviour.

The guide's keys for what the engine does (`training.batch_size`, `logging.log_interval`) are taken to the engine's
keys by `guide_keys`, wherever a config comes from.
"""

from typing import Any, Literal, Self

from pydantic import model_validator

from lead_trainer.contract.training_keys import Count, CountOrZero, PositiveOrZero, TrainingKeys
from lead_trainer.cpu_limit import loader_threads
from lead_trainer.recipes.world.data_keys import CurriculumKeys, DataKeys
from lead_trainer.recipes.world.guide_keys import in_engine_keys
from lead_trainer.recipes.world.model_keys import LoggingKeys, LossKeys, ModelKeys, OptimizerKeys, SchedulerKeys


class WorldConfig(TrainingKeys):
    """The resolved configuration of a training of the recipe `world`."""

    # --- run: names, files, logging
    seed: int = 42  # of initial weights, order of windows and augmentation
    logdir: str = "runs"  # folder of the results
    load_file: str = ""  # model of an earlier run whose weights this one begins with
    data_root: str = ""  # folder of the raw or prepared tree on this machine
    use_wandb: bool = False  # also reports to Weights & Biases
    wandb_name: str = ""  # of the run there
    use_dp: bool = False  # the guide's flag for DataParallel; here torchrun starts a process for each GPU
    distributed: bool = False  # batch_size was given for one process: it was multiplied by their number
    backend: Literal["auto", "nccl", "gloo"] = "auto"  # nccl is taken on GPUs and gloo on CPUs, whatever it says

    # --- the guide's section `training`, and how often what is reported
    batch_size: Count = 16  # global: of all processes together
    epochs: Count = 100  # length of the training
    gradient_accumulation_steps: Count = 4  # batches an optimizer step
    grad_clip_norm: PositiveOrZero = 1.0  # largest gradient norm; 0: off
    split_when_out_of_memory: bool = True  # recomputes activations, then cuts a batch that does not fit into memory
    best_metric: str = "val/psnr"  # a mean of the epoch or of the validation
    best_is_greatest: bool = True  # of best_metric
    log_scalars_frequency: Count = 100  # optimizer steps between scalars
    console_every_steps: CountOrZero = 100  # optimizer steps between console blocks
    validate_every_steps: CountOrZero = 1000  # optimizer steps between validations, besides those of epochs

    # --- sections
    data: DataKeys = DataKeys()
    curriculum: CurriculumKeys = CurriculumKeys()
    model: ModelKeys = ModelKeys()
    loss: LossKeys = LossKeys()
    optimizer: OptimizerKeys = OptimizerKeys()
    scheduler: SchedulerKeys = SchedulerKeys()
    logging: LoggingKeys = LoggingKeys()
    perceptual_weights: str = ""  # torchvision's VGG16 weights: a file, or store:weights/<file>; never downloaded
    perceptual_weights_sha256: str = ""  # of the file's bytes; needed for store:weights/<file>

    @model_validator(mode="before")
    @classmethod
    def _in_engine_keys(cls, values: Any) -> Any:
        return in_engine_keys(values) if isinstance(values, dict) else values

    @model_validator(mode="after")
    def _check(self) -> Self:
        side, wanted = self.model.picture_side, self.data.image_size
        if wanted != (side, side):
            raise ValueError(
                f"model.decoder: init_size {self.model.decoder.init_size} doubled by {len(self.model.decoder.stages)} "
                f"stages makes pictures of {side}x{side}, but data.image_size is {wanted[0]}x{wanted[1]}; change one"
            )
        if self.logging.rollout_context >= self.data.sequence_length:
            raise ValueError(
                f"logging.rollout_context: found {self.logging.rollout_context}, expected less than the "
                f"{self.data.sequence_length} frames of data.sequence_length"
            )
        return self

    @property
    def loader_threads(self) -> int:
        """How many threads load windows in each process."""
        return self.data.num_workers or loader_threads()

    @property
    def pictures_every_steps(self) -> int:
        """Optimizer steps between pictures; 0: none."""
        return self.logging.image_interval

    @property
    def first_predicting_epoch(self) -> int:
        """The epoch, from 0, from which on pictures are predicted and not only reconstructed."""
        return round(self.loss.pred_from_epoch_share * self.epochs)
