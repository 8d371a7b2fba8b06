"""The training guide's words for what every recipe's engine does, and the engine's for the same.

`training.num_epochs: 100` is `epochs: 100`. Called for each source of a config, so that a command line wins over a
file whichever words they use, and again when a config is checked, because pods and presets may use either.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

ENGINE_WORDS: dict[str, tuple[str, ...]] = {
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
_SECTIONS = frozenset(word.split(".")[0] for word in ENGINE_WORDS if "." in word)
_TRAINING = [word.removeprefix("training.") for word in ENGINE_WORDS if word.startswith("training.")]


def in_engine_words(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns config values with the engine's keys in the place of the guide's words.

    Raises ValueError for a word given beside its key, and for an unknown word of the section `training`, which has no
    other keys.
    """
    found = {key: value for key, value in values.items() if key not in _SECTIONS | ENGINE_WORDS.keys()}
    for section in sorted(_SECTIONS & values.keys()):
        words = values[section]
        if not isinstance(words, Mapping):
            found[section] = words  # an object of the section's class, or a mistake that its check names
            continue
        left = {key: value for key, value in words.items() if f"{section}.{key}" not in ENGINE_WORDS}
        if section == "training" and left:
            raise ValueError(f"training.{next(iter(left))}: unknown key{_near(str(next(iter(left))))}")
        if left:
            found[section] = left
        for key in words.keys() - left.keys():
            _set(found, values, f"{section}.{key}", words[key])
    for word in ENGINE_WORDS.keys() & values.keys():
        _set(found, values, word, values[word])
    return found


def _set(found: dict[str, Any], values: Mapping[str, Any], word: str, value: Any) -> None:
    for key in ENGINE_WORDS[word]:
        if key in values:
            raise ValueError(f"{key} is given twice, once as {word}; keep one")
        found[key] = _PRECISION.get(value, value) if key == "precision" and isinstance(value, bool) else value


def _near(name: str) -> str:
    near = get_close_matches(name, _TRAINING, n=1)
    return f"; did you mean {near[0]}?" if near else f"; expected one of {', '.join(_TRAINING)}"
