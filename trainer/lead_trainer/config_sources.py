"""Where a run's configuration comes from, and which source wins; the one normaliser of the command line.

    command line  >  LEAD_TRAINING_CONFIG  >  --config file  >  preset  >  config.json beside load_file  >  defaults

A key whose value is a mapping is merged key by key. Keys are either the run's (where data and results lie, how long,
from what) or the recipe's. The recipe judges its own; an unknown key is an error with its near match. Reads files,
writes none.
"""

import difflib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal

import yaml

from lead_protocol.merged_keys import merged_keys
from lead_trainer.errors import BadConfig

ENVIRONMENT = "LEAD_TRAINING_CONFIG"


@dataclass(frozen=True)
class RunKeys:
    """The keys that are the run's, not the recipe's."""

    recipe: str = "lead"  # what is trained: lead, distill, or an installed recipe
    preset: str = ""  # a named set of the recipe's values; the command line wins over it
    carla_root: str = ""  # folder of the raw data; its cache is built below it
    logdir: str = ""  # folder of the results, from which a run also resumes
    load_file: str = ""  # model_<epoch>.pth of an earlier stage, whose weights this one begins with
    resume: str = "auto"  # auto | never | a file that a run shows in logdir, where the recipe names its files
    continue_failed_training: bool = False  # LEAD's word for what resume=auto does
    epochs: int | None = None  # length of the training; None: as the recipe says
    seed: int = 0  # of initial weights, order of samples and augmentation
    seeds: tuple[int, ...] = ()  # trains once a seed, each in `logdir/seed_<n>`
    every_epochs: int = 1  # between checkpoints; 0: after the last epoch alone
    every_steps: int = 0  # a checkpoint inside an epoch
    on_best: bool = False  # a checkpoint also after an epoch that is better than all before
    keep_last: int = 3  # newest checkpoints that are kept
    keep_best: int = 1  # best checkpoints that are kept beside them
    keep_every_epochs: int = 0  # these stay for good; 0: none does
    tensorboard: bool = True  # writes the event files that `lead tensorboard` shows
    session_cache: str = ""  # a folder on a fast disk; empty: below logdir for a store of S3, none for one of folders
    wandb_mode: Literal["online", "offline", "disabled"] = "disabled"  # of Weights & Biases
    wandb_project: str = ""  # empty: the recipe says


TEXT_KEYS = frozenset(name for name, key in RunKeys.__dataclass_fields__.items() if key.type is str)


@dataclass(frozen=True)
class Sources:
    """What was said, by whom; a later one wins over an earlier one."""

    files: Sequence[Mapping[str, Any]]
    environment: Mapping[str, Any]
    command_line: Mapping[str, Any]

    def merged(self, written_out: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict) -> dict[str, Any]:
        """Returns every key that was said, by the one who wins; each source is read through `written_out` first."""
        return merged_keys(*map(written_out, (*self.files, self.environment, self.command_line)))


@dataclass(frozen=True)
class Resolved:
    """The run's keys and the recipe's, each of what the user said."""

    run: RunKeys
    recipe: Mapping[str, Any]


def read_sources(words: Sequence[str], config_files: Sequence[Path], environ: Mapping[str, str]) -> Sources:
    """Parses command line words, files and environment; raises BadConfig naming the word or file."""
    return Sources(
        [at_home(read_config_file(path.expanduser())) for path in config_files],
        at_home(parse_words(environ.get(ENVIRONMENT, "").split(), ENVIRONMENT)),
        at_home(parse_words(words, "argument")),
    )


def at_home(value: Any) -> Any:
    """Returns a value in which every text that begins with `~/` is a path below this user's home, as in a shell."""
    if isinstance(value, Mapping):
        return {key: at_home(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [at_home(inner) for inner in value]
    return str(Path(value).expanduser()) if isinstance(value, str) and value.startswith("~/") else value


def parse_words(words: Sequence[str], where: str) -> dict[str, Any]:
    """Returns the values of `key=value` words; values are YAML, `a.b=1` sets key b of a. Raises BadConfig.

    What a run's key of text is set to stays as it was typed: `logdir=010` is no number.
    """
    values: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.removeprefix("--").partition("=")
        if not equals or not key:
            raise BadConfig(f"{where} {word!r}: expected key=value, for example batch_size=64")
        try:
            value = yaml.safe_load(text) if text else ""
        except yaml.YAMLError as error:
            raise BadConfig(f"{where} {word!r}: the value is no YAML: {str(error).splitlines()[0]}") from error
        if key in TEXT_KEYS:
            values[key] = text if isinstance(value, int | float | date) and not isinstance(value, bool) else value
        else:
            _set(values, key.split("."), value, word)
    return values


def _set(values: dict[str, Any], path: Sequence[str], value: Any, word: str) -> None:
    for name in path[:-1]:
        values = values.setdefault(name, {})
        if not isinstance(values, dict):
            raise BadConfig(f"argument {word!r}: {name} has a value already, so it cannot have keys")
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
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadConfig(f"config file {path} cannot be read: {str(error).splitlines()[0]}") from error
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise BadConfig(f"config file {path} holds no mapping of keys to values")
    return values


# What the commands themselves take as options; everything else that begins with -- is a key.
OPTIONS = ("--config", "--collection", "--min-lr", "--max-lr", "--steps", "--split", "--submission")
SWITCHES = ("--help", "--write")  # without a value


def with_flags(arguments: Sequence[str]) -> list[str]:
    """Returns the words of a command line with `--a-key value`, `--a-key=value` and `--a-key` as `a_key=value` words.

    A flag without a value says true; `--no-a-key` says false where the key is called `a_key` (see `resolve`).
    """
    words: list[str] = []
    waiting = list(arguments)
    while waiting:
        word = waiting.pop(0)
        name, equals, value = word.partition("=")
        if not word.startswith("--") or name in (*OPTIONS, *SWITCHES) or len(word) == 2:
            words.append(word)
            if name in OPTIONS and not equals and waiting:
                words.append(waiting.pop(0))
            continue
        if not equals:
            follows = bool(waiting) and not waiting[0].startswith("--") and "=" not in waiting[0]
            value = waiting.pop(0) if follows else "true"
        words.append(f"{name[2:].replace('-', '_')}={value}")
    return words


def resolve(said: Mapping[str, Any], recipe_keys: Sequence[str]) -> Resolved:
    """Parts the run's keys from the recipe's; raises BadConfig for a run key of a wrong type."""
    names = RunKeys.__dataclass_fields__
    said = dict(_positive(key, value, {*names, *recipe_keys}) for key, value in said.items())
    run = {key: _typed(key, value) for key, value in said.items() if key in names}
    recipe = {key: value for key, value in said.items() if key not in names}
    for key in recipe:
        near = difflib.get_close_matches(key, names, n=1)
        if key.split(".")[0] not in recipe_keys and near and not difflib.get_close_matches(key, recipe_keys, n=1):
            raise BadConfig(f"{key}: unknown key; did you mean {near[0]!r}?")
    keys = RunKeys(**run)
    if keys.continue_failed_training and keys.resume == "never":
        raise BadConfig("continue_failed_training: found true beside resume=never; keep one of them")
    return Resolved(keys, recipe)


def _positive(key: str, value: Any, known: Collection[str]) -> tuple[str, Any]:
    """Returns `no_x` said true as `x` said false, where only `x` is a key."""
    if key.startswith("no_") and key not in known and key[3:] in known and value is True:
        return key[3:], False
    return key, value


def _typed(key: str, value: Any) -> Any:
    default = RunKeys.__dataclass_fields__[key].default
    expected = int if key == "epochs" else type(default)
    if key == "resume" and value not in ("auto", "never") and not Path(str(value)).is_file():
        raise BadConfig(f"resume: found {value!r}, expected auto or never")
    if key == "seeds":
        if not isinstance(value, list) or any(type(seed) is not int or seed < 0 for seed in value) or not value:
            raise BadConfig(f"seeds: found {value!r}, expected a list of numbers, for example seeds=[0,1,2]")
        return tuple(dict.fromkeys(value))
    if key == "wandb_mode" and value not in ("online", "offline", "disabled"):
        raise BadConfig(f"wandb_mode: found {value!r}, expected online, offline or disabled")
    if value is None and expected is str:
        return ""
    if type(value) is not expected:
        hint = "; write a text that YAML takes for something else in quotes" if expected is str else ""
        raise BadConfig(f"{key}: found {value!r}, expected {expected.__name__}{hint}")
    if isinstance(value, int) and value < 0:
        raise BadConfig(f"{key}: found {value}, expected 0 or more")
    return value


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
