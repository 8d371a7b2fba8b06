"""The student: an input encoder, a transformer over its tokens, queries for every step of every mode, and heads.

Shapes: B batch, K modes, T future steps, D the student's width, N tokens.
"""

import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from lead_trainer.blocks.stages import load_backbone_weights
from lead_trainer.contract.samples import Batch
from lead_trainer.contract.step import Facts
from lead_trainer.recipes.backbone_file import backbone_state
from lead_trainer.recipes.distill.action_stats import stats_in
from lead_trainer.recipes.distill.config import EMBEDDING_WIDTH, MAX_ACCELERATION, MAX_CURVATURE, DistillConfig
from lead_trainer.recipes.distill.modes import mode_of
from lead_trainer.recipes.distill.network.action_tokens import expected_actions
from lead_trainer.recipes.distill.network.camera_encoder import POSITION_SCALE_M
from lead_trainer.recipes.distill.network.unicycle import integrate

FEED_FORWARD = 4  # times the width
FIRST_ACTIONS = 0.01  # how far the first actions are from the labels' mean, in units of their spread

Predictions = Mapping[str, torch.Tensor]


class Student(nn.Module):
    """Predicts K trajectories of T steps; see `forward` for what it returns."""

    action_stats: torch.Tensor  # (2, 2), mean and spread of (acceleration, curvature)

    def __init__(self, config: DistillConfig, encoder: nn.Module, facts: Facts) -> None:
        super().__init__()
        self.config = config
        size, width = config.size, config.size.width
        self.encoder = encoder
        block: dict[str, Any] = {
            "d_model": width,
            "nhead": size.heads,
            "dim_feedforward": FEED_FORWARD * width,
            "dropout": 0.0,
        }
        kind: dict[str, Any] = {"activation": "gelu", "batch_first": True, "norm_first": True}
        self.context = nn.ModuleList(nn.TransformerEncoderLayer(**block, **kind) for _ in range(size.encoder_layers))
        self.context_norm = nn.LayerNorm(width)
        self.steps = nn.Parameter(torch.randn(config.horizon.future, width) * 0.02)
        self.modes = nn.Parameter(torch.randn(config.num_modes, 1, width) * 0.02)
        self.speed = nn.Linear(1, width)
        self.decoder = nn.ModuleList(nn.TransformerDecoderLayer(**block, **kind) for _ in range(size.decoder_layers))
        self.decoder_norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, _outputs(config))
        if config.unicycle and not config.discrete_actions:
            _begin_near_the_mean(self.head)
        if config.num_modes > 1:
            self.mode_head = nn.Linear(width, 1)
        if config.model == "reasoning":
            self.reasoning = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, EMBEDDING_WIDTH))
        if config.unicycle:
            self.register_buffer("action_stats", torch.tensor(stats_in(facts), dtype=torch.float32))
        self.checkpointed = False  # whether layers run twice in training and keep their input alone

    def forward(self, batch: Batch) -> Predictions:
        """Returns `xy` (B, K, T, 2) m, `sincos` (B, K, T, 2), `yaw` (B, K, T) rad and `logits` (B, K), all float32.

        In unicycle mode also `actions` (B, K, T, 2) and, where they are tokens, `bins` (B, K, T, 2, bins); with
        reasoning also `embedding` (B, 384).
        """
        memory_BND = self.encoder(batch)
        for layer in self.context:
            memory_BND = self._run(layer, memory_BND)
        memory_BND = self.context_norm(memory_BND)
        queries_BKTD = self._decode(memory_BND, batch["speed"])
        out = self.head(queries_BKTD).float()
        predictions = self._unicycle(out, batch) if self.config.unicycle else _direct(out)
        predictions["logits"] = self._logits(queries_BKTD)
        if self.config.model == "reasoning":
            predictions["embedding"] = self.reasoning(memory_BND.mean(1)).float()
        return predictions

    def _decode(self, memory_BND: torch.Tensor, speed_B: torch.Tensor) -> torch.Tensor:
        queries = (self.modes + self.steps).flatten(0, 1)
        queries = queries + self.speed(speed_B[:, None, None] / POSITION_SCALE_M)
        for layer in self.decoder:
            queries = self._run(layer, queries, memory_BND)
        queries = self.decoder_norm(queries)
        shaped: torch.Tensor = queries.view(len(queries), self.config.num_modes, self.config.horizon.future, -1)
        return shaped

    def _run(self, layer: nn.Module, *inputs: torch.Tensor) -> torch.Tensor:
        if self.checkpointed and self.training:
            again: torch.Tensor = checkpoint(layer, *inputs, use_reentrant=False)
            return again
        once: torch.Tensor = layer(*inputs)
        return once

    def _logits(self, queries_BKTD: torch.Tensor) -> torch.Tensor:
        if self.config.num_modes == 1:
            return queries_BKTD.new_zeros(queries_BKTD.shape[:2], dtype=torch.float32)
        logits: torch.Tensor = self.mode_head(queries_BKTD.mean(2)).squeeze(-1).float()
        return logits

    def _unicycle(self, out: torch.Tensor, batch: Batch) -> dict[str, torch.Tensor]:
        """Turns head outputs to actions and these to a trajectory.

        Continuous actions are the head's output in units of the labels' spread, bent softly into the limits; tokens act
        by their mean, in training and after it: the positions' loss shapes the mean, and the likeliest bins of 64 steps
        lead elsewhere.
        """
        extra = {}
        if self.config.discrete_actions:
            bins = out.view(*out.shape[:-1], 2, self.config.num_action_bins)
            actions = expected_actions(bins)
            extra["bins"] = bins
        else:
            mean, spread = self.action_stats
            limits = out.new_tensor([MAX_ACCELERATION, MAX_CURVATURE])
            actions = limits * torch.tanh((mean + spread * out) / limits)
        speed_BK = batch["speed"][:, None].expand(actions.shape[:2])
        xy, yaw = integrate(actions, speed_BK, self.config.horizon.dt_s)
        return {"xy": xy, "yaw": yaw, "sincos": _sincos(yaw), "actions": actions, **extra}


def _begin_near_the_mean(head: nn.Linear) -> None:
    """Makes every action about the labels' mean at first: a random one, integrated 64 times, spins the car or stops it.

    Not quite the mean, or all modes would be one.
    """
    nn.init.normal_(head.weight, std=FIRST_ACTIONS / head.in_features**0.5)
    nn.init.zeros_(head.bias)


def _outputs(config: DistillConfig) -> int:
    """Returns the head's outputs a step: x, y, sin, cos; or two actions; or two distributions over bins."""
    if config.no_unicycle:
        return 4
    return 2 * config.num_action_bins if config.discrete_actions else 2


def _direct(out_BKT4: torch.Tensor) -> dict[str, torch.Tensor]:
    sincos = out_BKT4[..., 2:]
    return {"xy": out_BKT4[..., :2] * POSITION_SCALE_M, "sincos": sincos, "yaw": torch.atan2(*sincos.unbind(-1))}


def _sincos(yaw: torch.Tensor) -> torch.Tensor:
    return torch.stack([torch.sin(yaw), torch.cos(yaw)], -1)


def build_model(config: DistillConfig, facts: Facts) -> Student:
    """Returns a student with fresh weights, with the encoder of its mode, whose backbone may begin with ImageNet's.

    `facts`: mean and spread of the training labels' actions, the units of its outputs.
    """
    student = Student(config, mode_of(config.benchmark).encoder(config), facts)
    if config.backbone_weights:
        state = backbone_state(config.backbone_weights, config.backbone_weights_sha256, os.environ)
        load_backbone_weights(student.encoder.get_submodule("backbone"), state, config.backbone_weights)
    return student


def parameter_count(config: DistillConfig) -> int:
    """Returns the number of the student's parameters without making any of them."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build_model(config, {}).parameters())
