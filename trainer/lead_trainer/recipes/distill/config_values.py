"""How values become a `DistillConfig`: presets, the guide's spellings, and errors that name the key and near matches.

Called by the recipe object and the preparation; it reads neither environment nor command line.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lead_trainer.errors import BadConfig
from lead_trainer.recipes.distill.config import DistillConfig
from lead_trainer.recipes.presets import names_in, near_matches, values_in

PACKAGE = "lead_trainer.recipes.distill"

# As the guide's flags are called on the left, as the trainer calls the same thing for every recipe on the right.
SPELLINGS: dict[str, str] = {"max_epochs": "epochs", "output_dir": "logdir"}


def respelled(said: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a user said under the trainer's names.

    `resume=FILE` names a file that a run shows in its folder; the run there is resumed, as any run is that is called
    again. Raises BadConfig where the file is not there, or `logdir` is another folder.
    """
    values = {SPELLINGS.get(key, key): value for key, value in said.items()}
    if len(values) < len(said):
        twice = next(key for key in said if SPELLINGS.get(key) in said)
        raise BadConfig(f"{SPELLINGS[twice]} is given twice, once spelled {twice}; keep one")
    named = str(values.get("resume", "auto"))
    if named in ("auto", "never"):
        return values
    file = Path(named)
    if not file.is_file():
        raise BadConfig(f"resume: found {named!r}, expected a file such as checkpoints/reasoning_seed42_latest.pt")
    if Path(str(values.get("logdir", file.parent))) != file.parent:
        raise BadConfig(f"resume: {named} is not in logdir {values['logdir']}; a run is resumed where it was made")
    return {**values, "resume": "auto", "logdir": str(file.parent)}


def preset_names() -> list[str]:
    """Returns the names of the recipe's presets."""
    return names_in(PACKAGE)


def preset_values(name: str) -> dict[str, Any]:
    """Returns the keys a preset sets; raises BadConfig with the near matches if there is none of that name."""
    return values_in(PACKAGE, name)


def load_config(values: Mapping[str, Any], preset: str = "") -> DistillConfig:
    """Returns defaults < preset < `values`, validated; raises BadConfig naming every bad key."""
    twice = [key for key in values if SPELLINGS.get(key) in values]
    if twice:
        raise BadConfig(f"{SPELLINGS[twice[0]]} is given twice, once spelled {twice[0]}; keep one")
    merged = preset_values(preset) if preset else {}
    merged.update({SPELLINGS.get(key, key): value for key, value in values.items()})
    try:
        return DistillConfig.model_validate(merged)
    except ValidationError as error:
        raise BadConfig("; ".join(_sentence(detail) for detail in error.errors())) from error


def _sentence(detail: Any) -> str:
    """Returns one pydantic error as a sentence with key, found, expected and remedy."""
    key = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        return f"{key}: unknown key{near_matches(key, [*DistillConfig.model_fields, *SPELLINGS])}"
    if detail["type"] == "missing":
        return f"{key}: is not set; name one, for example model=baseline or model=reasoning"
    if not key:
        return str(detail["msg"]).removeprefix("Value error, ")
    return f"{key}: found {detail['input']!r}; {detail['msg'][0].lower()}{detail['msg'][1:]}"
