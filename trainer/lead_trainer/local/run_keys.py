"""The keys that are the run's, whatever its recipe: where results lie, how long, from what, and what is kept."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from lead_trainer.errors import BadConfig

CountOrZero = Annotated[int, Field(ge=0)]


class RunKeys(BaseModel):
    """The keys that are the run's, not the recipe's."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True, strict=True)

    recipe: str = "lead"  # what is trained: lead, distill, world, nuplan, or an installed recipe
    preset: str = ""  # a named set of the recipe's values; the command line wins over it
    logdir: str = ""  # folder of the results, from which a run also resumes
    load_file: str = ""  # model_<epoch>.pth of an earlier stage, whose weights this one begins with
    resume: str = "auto"  # auto | never | a file that a run shows in logdir, where the recipe names its files
    epochs: CountOrZero | None = None  # length of the training; None: the recipe's default
    seed: CountOrZero = 0  # of initial weights, order of samples and augmentation
    seeds: tuple[CountOrZero, ...] = ()  # trains once a seed, each in `logdir/seed_<n>`
    every_epochs: CountOrZero = 1  # between checkpoints; 0: after the last epoch alone
    every_steps: CountOrZero = 0  # a checkpoint inside an epoch
    on_best: bool = False  # a checkpoint also after an epoch that is better than all before
    keep_last: CountOrZero = 3  # newest checkpoints that are kept
    keep_best: CountOrZero = 1  # best checkpoints that are kept beside them
    keep_every_epochs: CountOrZero = 0  # these stay for good; 0: none does
    tensorboard: bool = True  # writes the event files that `lead tensorboard` shows
    session_cache: str = ""  # a folder on a fast disk; empty: below logdir for a store of S3, none for one of folders
    wandb_mode: Literal["online", "offline", "disabled"] = "disabled"  # of Weights & Biases
    wandb_project: str = ""  # empty: the recipe's default

    @field_validator("*", mode="before")
    @classmethod
    def _no_text_is_an_empty_one(cls, value: Any, info: ValidationInfo) -> Any:
        return "" if value is None and info.field_name in TEXT_KEYS else value

    @field_validator("resume", mode="before")
    @classmethod
    def _resumable(cls, value: Any) -> Any:
        if value not in ("auto", "never") and not Path(str(value)).is_file():
            raise ValueError("expected auto or never")
        return value

    @field_validator("seeds", mode="before")
    @classmethod
    def _each_seed_once(cls, value: Any) -> Any:
        if not isinstance(value, list) or any(type(seed) is not int or seed < 0 for seed in value) or not value:
            raise ValueError("expected a list of numbers, for example seeds=[0,1,2]")
        return tuple(dict.fromkeys(value))


TEXT_KEYS = frozenset(name for name, field in RunKeys.model_fields.items() if field.annotation is str)
DEFAULT_RECIPE = str(RunKeys.model_fields["recipe"].default)


def run_keys(given: Mapping[str, Any]) -> RunKeys:
    """Returns the run's keys among the given ones; raises BadConfig naming every bad key, found and expected."""
    try:
        return RunKeys.model_validate(dict(given))
    except ValidationError as error:
        raise BadConfig("; ".join(_sentence(detail) for detail in error.errors())) from error


def _sentence(detail: Any) -> str:
    """Returns one of pydantic's errors as key, found, expected and, where there is one, the near match."""
    key, kind, found = ".".join(map(str, detail["loc"])), detail["type"], detail["input"]
    given = str(detail["msg"]).removeprefix("Value error, ")
    if not key:
        return given
    if kind == "extra_forbidden":
        return f"{key}: unknown key{_near(key, RunKeys.model_fields)}"
    if kind == "literal_error":
        arguments = detail["ctx"]["expected"].replace("'", "")
        return (
            f"{key}: found {found!r}, expected {arguments}{_near(found, arguments.replace(' or ', ', ').split(', '))}"
        )
    expected = {
        "string_type": "expected str; write a text that YAML takes for something else in quotes",
        "int_type": "expected int",
        "bool_type": "expected bool",
        "greater_than_equal": "expected 0 or more",
    }
    return f"{key}: found {found!r}, {expected.get(kind, given)}"


def _near(argument: Any, known: Any) -> str:
    near = difflib.get_close_matches(argument, known, n=1) if isinstance(argument, str) else []
    return f"; did you mean {near[0]}?" if near else ""
