"""Keys that a recipe names outside its config (in `Keys`, in presets): each must be one that there is.

A wrong one would have no effect, in silence.
"""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from lead_trainer.contract.checked_parts import BadPart
from lead_trainer.contract.keys import Keys
from lead_trainer.contract.training_keys import key_names, section_of

# Keys of a run that no recipe gets: one of its own by that name would never hold what a user wrote. Those that a recipe
# may declare too (epochs, seed, logdir, load_file) the engine fills in.
KEYS_OF_A_RUN = frozenset({
    "recipe", "preset", "resume", "seeds", "every_epochs", "every_steps", "on_best", "keep_last", "keep_best",
    "keep_every_epochs", "tensorboard", "session_cache", "wandb_mode", "wandb_project",
})  # fmt: skip


def refuse_taken_keys(recipe: str, model: type[BaseModel]) -> None:
    """Raises BadPart for a key of the config that `lead train` takes for the run's own."""
    if taken := sorted(KEYS_OF_A_RUN.intersection(key_names(model))):
        raise BadPart(
            f"Recipe {recipe!r}: config_model: the key {taken[0]!r} is one of every run, which no recipe reads; give "
            "yours another name"
        )


def refuse_unknown_keys(recipe: str, model: type[BaseModel], keys: Keys[Any]) -> None:
    """Raises BadPart with the near match for a key of `keys` that the config has not."""
    for part, key in _named(keys):
        *path, last = key.split(".")
        section = section_of(model, path)
        names = key_names(section or model)
        derived = section and isinstance(getattr(section, last, None), property)  # which a `config.json` may hold
        if section is None or not (last in names or derived):
            near = difflib.get_close_matches(last if section else key, names, n=1)
            hint = f"; did you mean {'.'.join([*path, near[0]]) if section else near[0]!r}?" if near else ""
            raise BadPart(f"Recipe {recipe!r}: keys.{part}: the config has no key {key!r}{hint}")


def _named(keys: Keys[Any]) -> Iterator[tuple[str, str]]:
    for part in ("inherited", "not_learned", "local", "weights"):
        yield from ((part, key) for key in getattr(keys, part))
    yield from (("spellings", key) for key in keys.spellings.values())
    if not isinstance(keys.presets, str):
        for name, values in keys.presets.items():
            yield from ((f"presets[{name!r}]", keys.spellings.get(key, key)) for key in _paths(values))


def _paths(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yields the keys that a preset sets, those in mappings by their paths."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _paths(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"
