"""The training guide's keys for what every recipe's engine does, and the engine's for the same.

`training.num_epochs: 100` is `epochs: 100`. Called for each source of a config, so that a command line wins over a
file whichever keys they use, and again when a config is checked, because pods and presets may use either. Presets use
the guide's, so there the engine's key is what was set over a preset, and wins.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

ENGINE_KEYS: dict[str, tuple[str, ...]] = {
    "training.batch_size": ("batch_size",),
    "training.num_epochs": ("epochs",),
    "training.use_amp": ("precision",),
    "training.gradient_accumulation": ("gradient_accumulation_steps",),
    "training.max_grad_norm": ("grad_clip_norm",),
    "training.use_gradient_checkpointing": ("gradient_checkpointing",),
    "training.distributed": ("distributed",),
    "training.backend": ("backend",),
    "logging.log_interval": ("log_scalars_frequency", "console_every_steps"),
    "logging.eval_interval": ("validate_every_steps",),
    "auto_oom": ("split_when_out_of_memory",),
}
_PRECISION = {True: "auto", False: "fp32"}  # of `use_amp`; auto asks the GPU, and a CPU trains in fp32
_POWER = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+")
_SECTIONS = frozenset(word.split(".")[0] for word in ENGINE_KEYS if "." in word)
_TRAINING = [word.removeprefix("training.") for word in ENGINE_KEYS if word.startswith("training.")]


def in_engine_keys(values: Mapping[str, Any], *, one_source: bool = False) -> dict[str, Any]:
    """Returns config values with the engine's keys in the place of the guide's keys.

    Raises ValueError for an unknown key of the section `training`, which has no other keys, and, in what comes from
    `one_source`, for both keys of one value.
    """
    values = numbers_read(values)
    found = {key: value for key, value in values.items() if key not in _SECTIONS | ENGINE_KEYS.keys()}
    for section in sorted(_SECTIONS & values.keys()):
        keys = values[section]
        if not isinstance(keys, Mapping):
            found[section] = keys  # an object of the section's class, or a mistake that its check reports
            continue
        left = {key: value for key, value in keys.items() if f"{section}.{key}" not in ENGINE_KEYS}
        if section == "training" and left:
            raise ValueError(f"training.{next(iter(left))}: unknown key{_near(str(next(iter(left))))}")
        if left:
            found[section] = left
        for key in keys.keys() - left.keys():
            _set(found, values, f"{section}.{key}", keys[key], one_source)
    for alias in ENGINE_KEYS.keys() & values.keys():
        _set(found, values, alias, values[alias], one_source)
    return found


def numbers_read(value: Any) -> Any:
    """Returns a config in which a text such as `1e-4` is a number, as the guide means it: YAML 1.1 wants a dot."""
    if isinstance(value, Mapping):
        return {key: numbers_read(inner) for key, inner in value.items()}
    return float(value) if isinstance(value, str) and _POWER.fullmatch(value) else value


def _set(found: dict[str, Any], values: Mapping[str, Any], alias: str, value: Any, one_source: bool) -> None:
    for key in ENGINE_KEYS[alias]:
        if key in values:
            if one_source:
                raise ValueError(f"{key} is given twice, once as {alias}; keep one")
            continue
        found[key] = _PRECISION.get(value, value) if key == "precision" and isinstance(value, bool) else value


def _near(name: str) -> str:
    near = get_close_matches(name, _TRAINING, n=1)
    return f"; did you mean {near[0]}?" if near else f"; expected one of {', '.join(_TRAINING)}"
