"""Every key of the recipe `nuplan`; it holds values, never behaviour."""

from typing import Self

from pydantic import model_validator

from lead_trainer.contract.training_keys import Count, CountOrZero, PositiveOrZero, TrainingKeys
from lead_trainer.recipes.nuplan.data_keys import DataKeys
from lead_trainer.recipes.nuplan.model_keys import LossKeys, ModelKeys, OptimizerKeys, SchedulerKeys


class NuplanConfig(TrainingKeys):
    """The resolved configuration of a training of the recipe `nuplan`."""

    # --- run: names, files, logging
    seed: int = 0  # of initial weights, order of samples and augmentation
    logdir: str = "checkpoints/nuplan"  # folder of the results
    load_file: str = ""  # model of an earlier run whose weights this one begins with
    data_root: str = "data/nuplan_mini"  # folder of the raw tree on this machine
    use_wandb: bool = False  # also reports to Weights & Biases
    wandb_name: str = ""  # of the run there
    backbone_weights: str = ""  # of the image network: a file, or store:weights/<file>; never downloaded
    backbone_weights_sha256: str = ""  # of the file's bytes; needed for store:weights/<file>

    # --- engine keys with another default: one GPU of 24 GB
    epochs: Count = 24  # length of the training
    batch_size: Count = 2  # global: of all processes together
    gradient_accumulation_steps: Count = 2  # batches an optimizer step
    grad_clip_norm: PositiveOrZero = 5.0  # largest gradient norm; 0: off
    precision: str = "fp16"  # number format: auto, fp32, bf16 or fp16; fp16 scales the loss
    split_when_out_of_memory: bool = True  # recomputes activations, then cuts a batch that does not fit into memory
    num_threads: CountOrZero = 8  # loader threads a process; 0: one a core this process may use
    best_metric: str = "val/mAP"  # a mean of the epoch or of the validation
    best_is_greatest: bool = True  # of best_metric
    log_scalars_frequency: Count = 10  # optimizer steps between scalars
    log_images_frequency: CountOrZero = 500  # optimizer steps between pictures; 0: none

    # --- sections
    data: DataKeys = DataKeys()
    model: ModelKeys = ModelKeys()
    loss: LossKeys = LossKeys()
    optimizer: OptimizerKeys = OptimizerKeys()
    scheduler: SchedulerKeys = SchedulerKeys()

    @model_validator(mode="after")
    def _check(self) -> Self:
        height, width = self.data.image_size
        coarse = 2 * self.model.image_stride
        if height < coarse or width < coarse:
            raise ValueError(f"data.image_size: found [{height}, {width}], expected {coarse} pixels a side or more")
        if not any(self.loss.task_weights.values()):
            raise ValueError("loss: every task has a weight of 0; give one a weight above 0")
        return self
