"""A recipe as small as one can be: a linear model on generated numbers; what the engine's tests train.

It has what a checkpoint could lose: batch-norm buffers, dropout, an optimizer with momenta, a restarting schedule.
`install_toy_recipe` makes it an entry point, as a package of somebody else's would. The environment can ask one rank to
send itself a signal in its n-th step: LEAD_TOY_SIGNAL=KILL:7:1 is SIGKILL in step call 7 of rank 1, TERM:v2:0 is
SIGTERM in the second batch that rank 0 validates.
"""

import math
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch.utils.checkpoint import checkpoint

from lead_trainer.errors import BadConfig
from lead_trainer.recipes.recipe import Batch, Evaluation, Sample, StageShape, StepOutput

FEATURES = 6


class ToyConfig(BaseModel):
    """The keys of the toy recipe."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    seed: int = 0
    epochs: int = 2
    batch_size: int = 8
    samples: int = 48
    lr: float = 0.05
    dropout: float = 0.2
    precision: str = "fp32"
    sync_batchnorm: bool = False
    poisoned_sample: int = -1  # its loss is not a number
    spoiled_input: bool = False  # the poisoned sample is so in its input, not in its label
    accumulate_steps: int = 1
    clip_quantile: float = 0.0
    ema_decay: float = 0.0
    freeze_batchnorm: bool = False
    gradient_checkpointing: bool = False
    split_when_out_of_memory: bool = False
    rows_in_memory: int = 0  # a larger micro-batch does not fit; 0: everything fits
    validation_samples: int = 0
    validate_every_steps: int = 0
    best_metric: str = ""
    best_is_greatest: bool = False
    patience_epochs: int = 0
    overfit_samples: int = 0
    max_samples: int = 0
    canonical_nodes: int = 1
    load_file: str = ""
    stuck_loading: bool = False  # no sample ever comes


@dataclass(frozen=True)
class ToySamples:
    """Points of a noisy plane; each a pure function of (seed, index, epoch)."""

    config: ToyConfig
    first: int = 0
    count: int = 0
    cache: Any = None  # of which a record is read a sample, and not looked at

    def __len__(self) -> int:
        return self.count or self.config.samples

    def name(self, index: int) -> str:
        return f"point-{index}"

    def epoch_draw(self, epoch: int) -> npt.NDArray[np.int64]:
        return np.arange(self.first, self.first + len(self), dtype=np.int64)

    def load(self, index: int, epoch: int) -> Sample:
        if self.config.stuck_loading:
            threading.Event().wait()
        if self.cache is not None:
            self.cache.fields(index)
        x = np.random.default_rng([index, 7]).normal(size=FEATURES).astype(np.float32)
        noise = np.random.default_rng([self.config.seed, index, epoch]).normal(scale=0.01)
        y = np.float32(x.sum() + noise)
        if index == self.config.poisoned_sample:
            x, y = (x * np.float32("nan"), y) if self.config.spoiled_input else (x, np.float32("nan"))
        return {"x": x, "y": y}


class ToyModel(torch.nn.Module):
    """Linear, batch norm, dropout, linear."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(FEATURES, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(dropout), torch.nn.Linear(8, 1)
        )

        self.checkpoints = False

    def enable_gradient_checkpointing(self) -> None:
        self.checkpoints = True

    def forward(self, x_BF: torch.Tensor) -> torch.Tensor:
        y_B1: torch.Tensor = (
            checkpoint(self.layers, x_BF, use_reentrant=False) if self.checkpoints else self.layers(x_BF)
        )
        return y_B1.squeeze(1)


class ToyRecipe:
    """The recipe `toy`."""

    name = "toy"
    config_model = ToyConfig
    preparation: Any = None
    _calls = _evaluations = 0

    def presets(self) -> Sequence[str]:
        return ["short"]

    def config(self, values: Mapping[str, Any], preset: str = "") -> ToyConfig:
        base: dict[str, Any] = {"samples": 16} if preset == "short" else {}
        try:
            return ToyConfig.model_validate(base | dict(values))
        except ValidationError as error:
            raise BadConfig(f"config of recipe toy: {error.errors()[0]['loc']}: {error.errors()[0]['msg']}") from error

    def shape(self, config: ToyConfig) -> StageShape:
        return StageShape(
            seed=config.seed,
            batch_size=config.batch_size,
            collection="points",
            precision=config.precision,
            deterministic=True,
            sync_batchnorm=config.sync_batchnorm,
            compile=False,
            grad_clip_norm=1.0,
            scalars_every_steps=1,
            pictures_every_steps=0,
            loader_threads=2,
            accumulate_steps=config.accumulate_steps,
            grad_clip_quantile=config.clip_quantile,
            grad_clip_history=20,
            ema_decay=config.ema_decay,
            freeze_batchnorm=config.freeze_batchnorm,
            gradient_checkpointing=config.gradient_checkpointing,
            split_when_out_of_memory=config.split_when_out_of_memory,
            validate_every_steps=config.validate_every_steps,
            best_metric=config.best_metric,
            best_is_greatest=config.best_is_greatest,
            patience_epochs=config.patience_epochs,
            overfit_samples=config.overfit_samples,
            max_samples=config.max_samples,
            canonical_nodes=config.canonical_nodes,
        )

    def samples(self, config: ToyConfig, cache: Any) -> ToySamples:
        return ToySamples(config, cache=cache)

    def validation_samples(self, config: ToyConfig, cache: Any) -> ToySamples | None:
        count = config.validation_samples
        return ToySamples(config, first=10_000, count=count) if count else None

    def evaluate(self, model: torch.nn.Module, batch: Batch, config: ToyConfig) -> Evaluation:
        self._evaluations += 1
        signal_myself(f"v{self._evaluations}")
        errors_B = (model(batch["x"]) - batch["y"]).double()
        return Evaluation({"loss": (errors_B.square().sum(), len(errors_B)), "bias": (errors_B.sum(), len(errors_B))})

    def validation_metrics(self, config: ToyConfig, means: Mapping[str, float]) -> Mapping[str, float]:
        return {**means, "rmse": math.sqrt(means["loss"])}

    def collate(self, samples: Sequence[Sample]) -> Batch:
        return {key: torch.from_numpy(np.stack([sample[key] for sample in samples])) for key in samples[0]}

    def model(self, config: ToyConfig) -> torch.nn.Module:
        return ToyModel(config.dropout)

    def load_initial_weights(self, model: torch.nn.Module, config: Any, state: Mapping[str, torch.Tensor]) -> None:
        model.load_state_dict(state)

    def optimizer(self, model: torch.nn.Module, config: ToyConfig) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=config.lr, amsgrad=True)

    def lr_factor(self, config: Any, step: int, steps_per_epoch: int, epochs: int) -> float:
        return 0.5 * (1 + math.cos(math.pi * (step % steps_per_epoch) / steps_per_epoch))

    def step(self, model: torch.nn.Module, batch: Batch, config: ToyConfig) -> StepOutput:
        self._calls += 1
        signal_myself(str(self._calls))
        if 0 < config.rows_in_memory < len(batch["x"]):
            raise torch.OutOfMemoryError(f"CUDA out of memory: {len(batch['x'])} rows")
        loss = torch.nn.functional.mse_loss(model(batch["x"]), batch["y"])
        return StepOutput(loss=loss, parts={"loss_plane": loss.detach()})

    def picture(self, config: Any, batch: Batch, outputs: Any) -> npt.NDArray[np.uint8] | None:
        return None

    def checkpoint_names(self, epoch: int) -> Mapping[str, str]:
        names = {part: f"{part}_{epoch:04d}.pth" for part in ("model", "optimizer", "scheduler", "scaler")}
        return {**names, "skipped": f"gradient_steps_skipped_{epoch:04d}.txt"}


RECIPE = ToyRecipe()


def signal_myself(call: str) -> None:
    """Sends this process the signal that LEAD_TOY_SIGNAL asks for, if this is the call and the rank it names."""
    wish = os.environ.get("LEAD_TOY_SIGNAL", "")
    if wish:
        name, wished, rank = wish.split(":")
        if call == wished and os.environ.get("RANK", "0") == rank:
            os.kill(os.getpid(), signal.Signals[f"SIG{name}"])


def install_toy_recipe(folder: Path) -> Path:
    """Writes the metadata of a package that offers the toy recipe; `folder` then belongs on the module search path."""
    info = folder / "lead_toy-1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lead-toy\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[lead.recipes]\ntoy = lead_testing.toy_recipe:RECIPE\n")
    return folder
