"""A timm backbone that runs stage by stage, so that two of them can exchange features between stages.

Never downloads weights; they come from a file that is already here.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

import timm
import torch
from torch import Tensor, nn

from lead_trainer.errors import BadConfig
from lead_trainer.weights_file import read_weights_file

STAGES = 4


def make_backbone(architecture: str, in_channels: int, key: str) -> nn.ModuleDict:
    """Returns timm's feature network with random weights; raises BadConfig naming `key` when timm has no such model.

    Only names of timm's own models are taken: with `hf-hub:` and `local-dir:` it would read a model from elsewhere.
    """
    names = timm.list_models()
    if architecture not in names:
        near = get_close_matches(re.split("[:/]", architecture)[-1].partition(".")[0], names, 5, 0.5)
        raise BadConfig(f"{key}: timm has no model {architecture[:100]!r}; near: {', '.join(near) or 'none'}")
    try:
        network: nn.ModuleDict = timm.create_model(
            architecture, pretrained=False, features_only=True, in_chans=in_channels
        )
    except (RuntimeError, AttributeError) as error:
        raise BadConfig(f"{key}: timm cannot make features of {architecture!r} ({error}); use another") from error
    if not hasattr(network, "return_layers"):
        raise BadConfig(
            f"{key}: timm's {architecture!r} cannot be run stage by stage; use another family, such as resnet34, "
            "regnety_032 or convnext_tiny"
        )
    if len(stage_channels(network)) != STAGES:
        raise BadConfig(f"{key}: {architecture!r} has {len(stage_channels(network))} stages, expected {STAGES}")
    return network


def stage_channels(network: nn.ModuleDict) -> list[int]:
    """Returns the output channels of the last four stages."""
    return list(network.feature_info.channels())[-STAGES:]  # type: ignore[operator,union-attr]


def stage_modules(network: nn.ModuleDict) -> list[list[nn.Module]]:
    """Returns the modules of each of the four stages in order; the first stage begins with the stem."""
    ends = list(network.return_layers)[-STAGES:]  # type: ignore[arg-type]
    stages: list[list[nn.Module]] = [[]]
    for name, module in network.items():
        stages[-1].append(module)
        if name in ends:
            stages.append([])
    return stages[:STAGES]


def run_stage(modules: list[nn.Module], features: Tensor) -> Tensor:
    """Runs one stage."""
    for module in modules:
        features = module(features)
    return features


def read_weights(path: Path, key: str = "backbone_weights") -> dict[str, Tensor]:
    """Reads a state dict from a `.safetensors` or torch file, running no code in it; raises BadConfig naming `key`."""
    if not path.is_file():
        raise BadConfig(f"{key}: no file at {path}; weights are never downloaded, put them there")
    state = read_weights_file(path, key)
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise BadConfig(f"{key}: {path} holds no state dict")
    weights: dict[str, Tensor] = state
    return weights


def load_backbone_weights(network: nn.Module, state: Mapping[str, Tensor], source: str) -> None:
    """Loads a classifier's weights into `network`; raises BadConfig naming the first weight that is missing or differs.

    Names may hold timm's nested form (`stages.0`) where the feature network has the flat one (`stages_0`).
    """
    own = network.state_dict()
    chosen: dict[str, torch.Tensor] = {}
    for name, value in own.items():
        found = state.get(name, state.get(name.replace("_", ".", 1)))
        if found is None:
            raise BadConfig(f"backbone_weights: {source} has no {name!r}; it belongs to another architecture")
        if found.shape != value.shape:
            raise BadConfig(
                f"backbone_weights: {source}: {name!r} is {tuple(found.shape)}, expected {tuple(value.shape)}"
            )
        chosen[name] = found
    network.load_state_dict(chosen)
