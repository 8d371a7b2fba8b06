"""The sections `model`, `loss`, `optimizer`, `scheduler` and `logging` of the recipe's config.

Names and defaults are those of the training guide's `configs/model/base.yaml` and `configs/training/base.yaml`; a
comment says what the guide has not.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from lead_trainer.contract.training_keys import Count, CountOrZero, Fraction, Positive, PositiveOrZero
from lead_trainer.recipes.world.data_keys import Section

Widths = Annotated[tuple[Count, ...], Field(strict=False, min_length=2)]
PATCH = 4  # pixels a side that the encoder's first layer and pooling make one place


class EncoderKeys(Section):
    """The section `model.encoder`."""

    stages: Widths = (64, 128, 256, 512)  # channels: of the first layer, then of each residual stage
    num_heads: Count = 4  # of the attention over the last map
    latent_norm: Literal["batch", "none"] = "batch"  # batch: latents are normalised over the batch; not in the guide


class DynamicsKeys(Section):
    """The section `model.dynamics`."""

    num_layers: Count = 4  # GRU cells, one above the other
    dropout: Fraction = 0.1  # between them


class DecoderKeys(Section):
    """The section `model.decoder`."""

    stages: Annotated[tuple[Count, ...], Field(strict=False, min_length=1)] = (512, 256, 128, 64)  # channels
    init_size: Count = 16  # side of the first map, pixels; each stage doubles it


class ModelKeys(Section):
    """The section `model`."""

    latent_dim: Count = 256  # numbers of a latent
    action_dim: Literal[4] = 4  # steering, throttle, brake, gear
    hidden_dim: Count = 512  # numbers of each GRU cell's state
    encoder: EncoderKeys = EncoderKeys()
    dynamics: DynamicsKeys = DynamicsKeys()
    decoder: DecoderKeys = DecoderKeys()

    @model_validator(mode="after")
    def _heads_share_the_channels(self) -> Self:
        channels, heads = self.encoder.stages[-1], self.encoder.num_heads
        if channels % heads:
            raise ValueError(f"encoder.num_heads is {heads}, expected a divisor of the last stage's {channels}")
        return self

    @property
    def picture_side(self) -> int:
        """The height and width, in pixels, of what the decoder makes."""
        return self.decoder.init_size << len(self.decoder.stages)


class OptimizerKeys(Section):
    """The section `optimizer`."""

    type: Literal["adamw"] = "adamw"  # the guide names no other
    lr: Positive = 1e-4  # learning rate of every part without one of its own
    encoder_lr: Positive | None = 1e-5  # null: lr
    dynamics_lr: Positive | None = 1e-4  # null: lr
    decoder_lr: Positive | None = 1e-4  # null: lr
    weight_decay: PositiveOrZero = 0.01  # of every parameter
    betas: Annotated[tuple[Fraction, Fraction], Field(strict=False)] = (0.9, 0.999)  # of Adam's moments

    def rates(self) -> dict[str, float]:
        """Returns the learning rate of each part of the model, after the warm-up."""
        own = {"encoder": self.encoder_lr, "dynamics": self.dynamics_lr, "decoder": self.decoder_lr}
        return {part: self.lr if rate is None else rate for part, rate in own.items()}


class SchedulerKeys(Section):
    """The section `scheduler`."""

    type: Literal["cosine", "constant"] = "cosine"  # after the warm-up
    warmup_steps: CountOrZero = 1000  # optimizer steps until the rates are reached
    min_lr: PositiveOrZero = 1e-6  # of each part, at the end of a cosine


class LossKeys(Section):
    """The section `loss`: each weight multiplies a term that 0 removes."""

    recon_weight: PositiveOrZero = 1.0  # mean absolute error of reconstructed pictures
    pred_weight: PositiveOrZero = 1.0  # mean absolute error of predicted pictures
    perceptual_weight: PositiveOrZero = 0.1  # distance of VGG16 features; needs perceptual_weights, a file
    latent_reg_weight: PositiveOrZero = 0.01  # mean square of latents; under latent_norm batch of predicted ones
    temporal_weight: PositiveOrZero = 0.1  # squared distance of predicted latents to the next frames' own
    pred_time_ramp: PositiveOrZero = 0.0  # step t of T weighs 1 + (t / T) of this in pred; not in the guide
    pred_from_epoch_share: Annotated[float, Field(ge=0.0, le=1.0)] = 0.1  # before it the model reconstructs alone


class LoggingKeys(Section):
    """The section `logging`, as far as it is no key of the engine."""

    num_samples: Count = 8  # clips of a picture
    image_interval: CountOrZero = 1000  # optimizer steps between training's pictures; 0: none
    rollout_context: Count = 1  # true frames that an open-loop prediction begins with
