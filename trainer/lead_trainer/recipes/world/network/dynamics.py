"""Latents and actions to later latents: FiLM by the action, then GRU cells one above the other."""

import torch
from torch import nn

from lead_trainer.recipes.world.model_keys import ModelKeys

Memory = list[torch.Tensor]  # the state (B, hidden_dim) of each cell


class Dynamics(nn.Module):
    """Predicts the change of a latent in one step from the latent, the action and what came before."""

    def __init__(self, model: ModelKeys) -> None:
        super().__init__()
        hidden = model.hidden_dim
        self.enter = nn.Linear(model.latent_dim, hidden)
        self.film = nn.Sequential(nn.Linear(model.action_dim, hidden), nn.SiLU(), nn.Linear(hidden, 2 * hidden))
        self.cells = nn.ModuleList(nn.GRUCell(hidden, hidden) for _ in range(model.dynamics.num_layers))
        self.dropout = nn.Dropout(model.dynamics.dropout)
        self.norm = nn.LayerNorm(hidden)
        self.leave = nn.Linear(hidden, model.latent_dim)

    def begin(self, latent: torch.Tensor) -> Memory:
        """Returns the memory before the first step, zeros."""
        return [latent.new_zeros(len(latent), self.enter.out_features) for _ in self.cells]

    def step(self, latent: torch.Tensor, action: torch.Tensor, memory: Memory) -> tuple[torch.Tensor, Memory]:
        """Returns the next latent (B, latent_dim) and the memory after it; the action is (B, action_dim)."""
        scale, shift = self.film(action).chunk(2, -1)
        features = self.enter(latent) * (1 + scale) + shift
        after: Memory = []
        for cell, state in zip(self.cells, memory, strict=True):
            state = cell(features, state)
            features = features + self.dropout(state)
            after.append(state)
        return latent + self.leave(self.norm(features)), after

    def forward(self, latents: torch.Tensor, actions: torch.Tensor, context: int) -> torch.Tensor:
        """Returns the latents (B, S, latent_dim) after each of S actions (B, S, action_dim).

        The first `context` steps start from the given latents (B, at least `context`, latent_dim), later ones from the
        latent predicted before.
        """
        memory, predicted = self.begin(latents[:, 0]), list[torch.Tensor]()
        for step in range(actions.shape[1]):
            latent = latents[:, step] if step < context else predicted[-1]
            guess, memory = self.step(latent, actions[:, step], memory)
            predicted.append(guess)
        return torch.stack(predicted, 1)
