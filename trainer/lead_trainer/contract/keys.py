"""What a recipe defines about its config besides the keys: presets, aliases, and where a key counts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic

from lead_trainer.contract.checked_parts import checked_parts
from lead_trainer.contract.config_values import checked, values_in
from lead_trainer.contract.step import ConfigT


def unchanged(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns what it was given."""
    return given


def no_explanation(kind: str, path: Sequence[str]) -> str:
    """Adds nothing to pydantic's message about a bad value."""
    return ""


@checked_parts
@dataclass(frozen=True, kw_only=True)
class Keys(Generic[ConfigT]):
    """Keys of a config; a key in a section is named by its path, `data.num_workers`."""

    #: Named presets, or the dotted package whose folder `presets` holds them as YAML.
    presets: str | Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: Aliases of keys.
    spellings: Mapping[str, str] = field(default_factory=dict)
    #: What is wrong with a bad value: pydantic's name of the error and the key's path to a sentence, empty for none.
    explain: Callable[[str, Sequence[str]], str] = no_explanation
    #: The last check of a valid config; raises BadConfig for what the recipe does not support.
    check: Callable[[ConfigT], None] = lambda config: None
    #: The check of a run on this machine that begins at step 0 (config, `load_file`, its folder of results); raises
    #: BadConfig where its user asked for a run to be continued.
    check_begin: Callable[[ConfigT, Path | None, Path], None] = lambda config, load_file, logdir: None
    #: One source of configuration (a file, the command line) with each shorthand replaced by its mapping.
    expand: Callable[[Mapping[str, Any]], Mapping[str, Any]] = unchanged
    #: Translates a user's keys to the trainer's names; raises BadConfig for what cannot be kept.
    respell: Callable[[Mapping[str, Any]], Mapping[str, Any]] = unchanged
    #: `config.json` of a resolved config, where others read it too; default: its keys.
    to_document: Callable[[ConfigT], Mapping[str, Any]] | None = None
    #: The keys that a `config.json` sets.
    from_document: Callable[[Mapping[str, Any]], Mapping[str, Any]] = unchanged
    #: A `config.json` as the program that evaluates the weights reads it, and what a person should know before that.
    for_evaluation: Callable[[Mapping[str, Any]], tuple[Mapping[str, Any], Sequence[str]]] | None = None
    #: Keys that a stage takes over from the `config.json` beside `load_file`.
    inherited: frozenset[str] = frozenset()
    #: Keys of the recipe's own that teach nothing: they may differ between a checkpoint and the run that resumes it.
    not_learned: frozenset[str] = frozenset()
    #: Keys that a cluster sets in another place, with that place; rejected in a pod.
    local: Mapping[str, str] = field(default_factory=dict)
    #: Keys that name a file of weights, on a laptop any, in a cluster one of the store's folder `weights/`.
    weights: frozenset[str] = frozenset()

    def config(self, model: type[ConfigT], values: Mapping[str, Any], preset: str = "") -> ConfigT:
        """Returns the validated config: defaults < preset < values; raises BadConfig naming key and near matches."""
        base = values_in(self.presets, preset) if preset else {}
        found = checked(model, base, values, self.spellings, self.explain)
        self.check(found)
        return found
