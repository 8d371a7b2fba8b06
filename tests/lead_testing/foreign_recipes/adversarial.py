"""A decoder of the next frame that learns against a critic: two optimizers, a frozen perceptual network, clips.

The data are squares that move over black pictures. Shapes: B batch, T frames, 8 x 8 grey pixels in [0, 1].
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.reports import Reports, Tags
from lead_trainer.contract.samples import Batch, Caches, Sample, Samples
from lead_trainer.contract.step import Facts, StepContext, StepOutput
from lead_trainer.contract.training_keys import TrainingKeys
from lead_trainer.contract.validation import Evaluation, Validation

SIDE, FRAMES, SLOW = 8, 4, 0.9


class Config(TrainingKeys):
    epochs: int = 2
    batch_size: int = 8
    precision: str = "fp32"
    num_threads: int = 1
    samples: int = 32
    critic_weight: float = 0.1


class Squares(Samples):
    """Clips of one square each, (T, 8, 8)."""

    def __init__(self, first: int, count: int) -> None:
        self.first, self.count = first, count

    def __len__(self) -> int:
        return self.count

    def epoch_draw(self, epoch: int) -> npt.NDArray[np.int64]:
        return np.arange(self.count)

    def load(self, index: int, epoch: int) -> Sample:
        at, speed = np.random.default_rng([self.first + index]).integers((0, 0, -1, -1), (6, 6, 2, 2)).reshape(2, 2)
        clip = np.zeros((FRAMES, SIDE, SIDE), np.float32)
        for frame in range(FRAMES):
            y, x = np.clip(at + frame * speed, 0, SIDE - 2)
            clip[frame, y : y + 2, x : x + 2] = 1.0
        return {"clip": clip}


class Networks(nn.Module):
    """What learns, and the slow copy of the decoder that is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = nn.Sequential(
            nn.Conv2d(FRAMES - 1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1)
        )
        self.critic = nn.Sequential(nn.Conv2d(FRAMES, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(1))
        self.critic(torch.zeros(1, FRAMES, SIDE, SIDE))
        self.slow = nn.Conv2d(8, 1, 3, padding=1).requires_grad_(False)
        self.slow.load_state_dict(self.decoder[-1].state_dict())

    def forward(self, past: torch.Tensor) -> torch.Tensor:
        """Returns the next frame (B, 1, 8, 8) of three."""
        return torch.sigmoid(self.decoder(past))


def step(model: nn.Module, batch: Batch, context: StepContext[Config]) -> StepOutput:
    past, truth = batch["clip"][:, :-1], batch["clip"][:, -1:]
    networks = model
    assert isinstance(networks, Networks) and context.helpers is not None
    if context.optimizer == "critic":
        with torch.no_grad():
            guess = networks(past)
        real, fake = (networks.critic(torch.cat([past, last], 1)) for last in (truth, guess))
        loss = functional.softplus(-real).mean() + functional.softplus(fake).mean()
        return StepOutput(loss, {"critic": loss.detach()})
    guess = networks(past)
    perceptual = (context.helpers(guess) - context.helpers(truth)).abs().mean()
    fooled = functional.softplus(-networks.critic(torch.cat([past, guess], 1))).mean()
    loss = (guess - truth).abs().mean() + perceptual + context.config.critic_weight * fooled
    return StepOutput(loss, {"decoder": loss.detach(), "perceptual": perceptual.detach()}, outputs=guess)


def follow(model: nn.Module, context: StepContext[Config]) -> None:
    """Moves the slow copy a little towards the decoder."""
    assert isinstance(model, Networks)
    for slow, fast in zip(model.slow.parameters(), model.decoder[-1].parameters(), strict=True):
        slow.lerp_(fast, 1 - SLOW)


def perceptual_network(config: Config) -> nn.Module:
    """Returns features that never learn; where they come from does not matter here, so they are seeded."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3))


def evaluate(model: nn.Module, batch: Batch, context: StepContext[Config]) -> Evaluation:
    past, truth = batch["clip"][:, :-1], batch["clip"][:, -1:]
    guess = model(past)
    errors = (guess - truth).abs().mean((1, 2, 3)).double()
    pictures = {} if context.micro_batch else {"val/rollout": rollout(past, guess)}
    return Evaluation({"loss": (errors.sum(), len(errors))}, pictures=pictures)


def rollout(past: torch.Tensor, guess: torch.Tensor) -> npt.NDArray[np.uint8]:
    """Returns the first sample's past and guess as a clip."""
    clip = torch.cat([past, guess], 1)[0].detach().cpu().numpy()
    return np.repeat((255 * clip.clip(0, 1)).astype(np.uint8)[..., None], 3, -1)


def optimizers(model: nn.Module, config: Config) -> dict[str, torch.optim.Optimizer]:
    assert isinstance(model, Networks)
    return {
        "decoder": torch.optim.Adam(model.decoder.parameters(), lr=1e-2),
        "critic": torch.optim.SGD(model.critic.parameters(), lr=1e-2, momentum=0.9),
    }


def samples(config: Config, caches: Caches) -> Samples:
    return Squares(0, config.samples)


def model(config: Config, facts: Facts) -> nn.Module:
    return Networks()


RECIPE = Recipe[Config](
    name="adversarial",
    config_model=Config,
    samples=samples,
    model=model,
    step=step,
    optimizer=optimizers,
    after_update=follow,
    helpers=perceptual_network,
    validation=Validation(samples=lambda config, caches: Squares(10_000, 5), evaluate=evaluate),
    reports=Reports(
        tags=Tags(parts="gan/"),
        pictures=lambda config, batch, outputs: {"gan/rollout": rollout(batch["clip"][:, :-1], outputs)},
    ),
)
