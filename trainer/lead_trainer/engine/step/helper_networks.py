"""The frozen networks that a recipe's step uses beside its model: no part of a checkpoint, a hash or an average."""

from typing import Any

import torch

from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.results import returned


def frozen_helpers(recipe: Recipe[Any], config: Any, device: torch.device) -> torch.nn.Module | None:
    """Returns a recipe's helper networks on the device, in eval mode; None where it has none."""
    if recipe.helpers is None:
        return None
    networks: torch.nn.Module = returned(recipe.name, "helpers", recipe.helpers(config), torch.nn.Module)
    return networks.requires_grad_(False).eval().to(device)
