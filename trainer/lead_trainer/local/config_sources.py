"""Where a run's configuration comes from, and which source wins; the one normaliser of the command line.

    command line  >  LEAD_TRAINING_CONFIG  >  --config file  >  preset  >  config.json beside load_file  >  defaults

A key whose value is a mapping is merged key by key. Keys are either the run's (where data and results lie, how long,
from what) or the recipe's. The recipe judges its own; an unknown key is an error with its near match. Reads files,
writes none.
"""

import difflib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from lead_protocol.merged_keys import merged_keys
from lead_trainer.errors import BadConfig
from lead_trainer.local.plain_yaml import plain_yaml
from lead_trainer.local.run_keys import TEXT_KEYS, RunKeys, run_keys

ENVIRONMENT = "LEAD_TRAINING_CONFIG"


@dataclass(frozen=True)
class Sources:
    """Given keys by source; a later source wins over an earlier one."""

    files: Sequence[Mapping[str, Any]]
    environment: Mapping[str, Any]
    command_line: Mapping[str, Any]

    def merged(self, written_out: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict) -> dict[str, Any]:
        """Returns every given key, from the winning source; each source is read through `written_out` first."""
        return merged_keys(*map(written_out, (*self.files, self.environment, self.command_line)))


def replaced_values(names: Sequence[str], files: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns a sentence for each value of a file that a later one of the files replaces by another."""
    found: dict[str, tuple[str, Any]] = {}
    sentences = []
    for name, keys in zip(names, files, strict=True):
        for key, value in _leaves(keys):
            before, earlier = found.get(key, (name, value))
            if earlier != value:
                sentences.append(f"{key}: {name} has {value!r} where {before} has {earlier!r}; the later file wins")
            found[key] = name, value
    return sentences


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


@dataclass(frozen=True)
class Resolved:
    """The run's keys and the recipe's, as the user gave them."""

    run: RunKeys
    recipe: Mapping[str, Any]


def read_sources(arguments: Sequence[str], config_files: Sequence[Path], environ: Mapping[str, str]) -> Sources:
    """Parses command line arguments, files and environment; raises BadConfig naming the argument or file."""
    return Sources(
        [at_home(read_config_file(path.expanduser())) for path in config_files],
        at_home(parse_arguments(environ.get(ENVIRONMENT, "").split(), ENVIRONMENT)),
        at_home(parse_arguments(arguments, "argument")),
    )


def at_home(value: Any) -> Any:
    """Returns a value in which every text that begins with `~/` is a path below this user's home, as in a shell."""
    if isinstance(value, Mapping):
        return {key: at_home(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [at_home(inner) for inner in value]
    return str(Path(value).expanduser()) if isinstance(value, str) and value.startswith("~/") else value


def parse_arguments(arguments: Sequence[str], where: str) -> dict[str, Any]:
    """Returns the values of `key=value` arguments; values are YAML, `a.b=1` sets key b of a. Raises BadConfig.

    What a run's key of text is set to stays as it was typed, and the root of a raw tree: `logdir=010` is no number.
    """
    values: dict[str, Any] = {}
    for argument in arguments:
        key, equals, text = argument.removeprefix("--").partition("=")
        if not equals or not key:
            raise BadConfig(f"{where} {argument!r}: expected key=value, for example batch_size=64")
        try:
            value = plain_yaml(text) if text else ""
        except yaml.YAMLError as error:
            raise BadConfig(f"{where} {argument!r}: the value is no YAML: {str(error).splitlines()[0]}") from error
        if key in TEXT_KEYS or key.endswith("_root"):
            values[key] = text if isinstance(value, int | float | date) and not isinstance(value, bool) else value
        else:
            _set(values, key.split("."), value, argument)
    return values


def _set(values: dict[str, Any], path: Sequence[str], value: Any, argument: str) -> None:
    for name in path[:-1]:
        values = values.setdefault(name, {})
        if not isinstance(values, dict):
            raise BadConfig(f"argument {argument!r}: {name} has a value already, so it cannot have keys")
    # YAML 1.1 reads 3e-4 as a text, because it lacks the dot.
    values[path[-1]] = _number(value) if isinstance(value, str) else value


def _number(text: str) -> Any:
    try:
        return float(text) if "e" in text.lower() and text[:1] in "+-.0123456789" else text
    except ValueError:
        return text


def read_config_file(path: Path) -> dict[str, Any]:
    """Reads a YAML or JSON mapping; raises BadConfig naming the file."""
    try:
        values = plain_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadConfig(f"config file {path} cannot be read: {str(error).splitlines()[0]}") from error
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise BadConfig(f"config file {path} holds no mapping of keys to values")
    return values


# What the commands themselves take as options; everything else that begins with -- is a key.
OPTIONS = ("--config", "--collection", "--min-lr", "--max-lr", "--steps", "--split", "--submission")
SWITCHES = ("--help", "--write")  # without a value


def with_flags(arguments: Sequence[str]) -> list[str]:
    """Returns a command line's arguments with `--a-key value`, `--a-key=value` and `--a-key` as `a_key=value`.

    A flag without a value means true; `--no-a-key` means false where the key is called `a_key` (see `resolve`).
    """
    resolved: list[str] = []
    waiting = list(arguments)
    while waiting:
        argument = waiting.pop(0)
        name, equals, value = argument.partition("=")
        if not argument.startswith("--") or name in (*OPTIONS, *SWITCHES) or len(argument) == 2:
            resolved.append(argument)
            if name in OPTIONS and not equals and waiting:
                resolved.append(waiting.pop(0))
            continue
        if not equals:
            follows = bool(waiting) and not waiting[0].startswith("--") and "=" not in waiting[0]
            value = waiting.pop(0) if follows else "true"
        resolved.append(f"{name[2:].replace('-', '_')}={value}")
    return resolved


def resolve(given: Mapping[str, Any], recipe_keys: Sequence[str]) -> Resolved:
    """Parts the run's keys from the recipe's; raises BadConfig for a run key of a wrong value."""
    names = RunKeys.model_fields
    given = dict(_positive(key, value, {*names, *recipe_keys}) for key, value in given.items())
    run = {key: value for key, value in given.items() if key in names}
    recipe = {key: value for key, value in given.items() if key not in names}
    for key in recipe:
        near = difflib.get_close_matches(key, names, n=1)
        if key.split(".")[0] not in recipe_keys and near and not difflib.get_close_matches(key, recipe_keys, n=1):
            raise BadConfig(f"{key}: unknown key; did you mean {near[0]!r}?")
    return Resolved(run_keys(run), recipe)


def _positive(key: str, value: Any, known: Collection[str]) -> tuple[str, Any]:
    """Returns `no_x: true` as `x: false`, where only `x` is a key."""
    if key.startswith("no_") and key not in known and key[3:] in known and value is True:
        return key[3:], False
    return key, value


def read_config_json(path: Path) -> dict[str, Any]:
    """Reads the `config.json` of an earlier stage; an absent one sets nothing."""
    if not path.is_file():
        return {}
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadConfig(f"{path} is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise BadConfig(f"{path} holds no mapping of keys to values")
    return document
