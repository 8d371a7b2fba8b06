"""The smallest world model: what its tests put on the command line, or into a config."""

from typing import Any

from lead_trainer.recipes.world.config import WorldConfig
from lead_trainer.recipes.world.config_values import KEYS

SMALL: dict[str, Any] = {
    "data.sequence_length": 4,
    "data.image_size": [32, 32],
    "model.latent_dim": 16,
    "model.hidden_dim": 16,
    "model.encoder.stages": [8, 16],
    "model.encoder.num_heads": 2,
    "model.decoder.stages": [16, 8, 8],
    "model.decoder.init_size": 4,
}
# On a command line.
SMALL_WORDS = ["recipe=world", "preset=tiny", *(f"{key}={value}" for key, value in SMALL.items())]


def small_config(**changes: Any) -> WorldConfig:
    """Returns the smallest config with changes by their path, `loss__pred_weight=0.0`."""
    values: dict[str, Any] = {}
    for key, value in {**SMALL, **{name.replace("__", "."): change for name, change in changes.items()}}.items():
        *path, name = key.split(".")
        section = values
        for part in path:
            section = section.setdefault(part, {})
        section[name] = value
    return KEYS.config(WorldConfig, values, "tiny")
