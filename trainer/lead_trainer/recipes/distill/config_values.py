"""How values become a `DistillConfig`: presets, the guide's spellings, and errors that name the key and near matches.

Called by the recipe object and the preparation; it reads neither environment nor command line.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lead_trainer.contract.keys import Keys
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.distill.config import DistillConfig
from lead_trainer.recipes.distill.run_keys import LOCAL_KEYS, NOT_LEARNED, WEIGHTS_KEYS

PACKAGE = "lead_trainer.recipes.distill"

# As the guide's flags are called on the left, as the trainer calls the same thing for every recipe on the right.
SPELLINGS: dict[str, str] = {"max_epochs": "epochs", "output_dir": "logdir"}

# What a stage takes over from the stage of `load_file`: the student's shape and what it sees.
STUDENT_KEYS = frozenset(
    {
        "discrete_actions", "max_agents", "max_polylines", "model_size", "no_unicycle", "num_action_bins",
        "polyline_points", "raster_metres_per_pixel", "raster_pixels", "resolution", "vector_radius_m",
    }
)  # fmt: skip

_SHOWN = re.compile(r"(?P<model>baseline|reasoning)_seed(?P<seed>\d+)_(best|latest|epoch\d+)\.pt")


def respelled(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a user's keys under the trainer's names.

    `resume=FILE` names a file that a run shows in its folder, and so that run's folder, model and seed. Of a copy that
    lies elsewhere or is called otherwise `logdir` names the run's folder. Raises BadConfig where there is no such file,
    and for a model or seed that another run has.
    """
    values = {SPELLINGS.get(key, key): value for key, value in given.items()}
    if len(values) < len(given):
        twice = next(key for key in given if SPELLINGS.get(key) in given)
        raise BadConfig(f"{SPELLINGS[twice]} is given twice, once spelled {twice}; keep one")
    named = str(values.get("resume", "auto"))
    if named in ("auto", "never"):
        return values
    file = Path(named)
    match = _SHOWN.fullmatch(file.name)
    if not file.is_file() or (match is None and "logdir" not in values):
        raise BadConfig(
            f"resume: found {named!r}, expected a file such as checkpoints/reasoning_seed42_latest.pt, or a copy of it "
            "with logdir, the folder of its run"
        )
    of_file = {"model": match["model"], "seed": int(match["seed"])} if match else {}
    for key, value in of_file.items():
        found = values.get(key, value)
        if found != value:
            raise BadConfig(f"{key}: found {found!r}, but {named} is of a run with {key} {value}; remove the key")
    return {"logdir": str(file.parent), **values, **of_file}


def load_config(values: Mapping[str, Any], preset: str = "") -> DistillConfig:
    """Returns defaults < preset < `values`, validated; raises BadConfig naming every bad key."""
    return KEYS.config(DistillConfig, values, preset)


def config_of_cache(config: Mapping[str, Any]) -> DistillConfig:
    """Returns the config of a cache: the recipe's keys and optionally `preset`; it need not name its readers."""
    values = {"model": "baseline", **{key: value for key, value in config.items() if key != "preset"}}
    return load_config(values, str(config.get("preset", "")))


def explained(kind: str, path: Sequence[str]) -> str:
    if kind == "missing" and path == ["model"]:
        return "model: is not set; name one, for example model=baseline or model=reasoning"
    return ""


KEYS = Keys[DistillConfig](
    presets=PACKAGE,
    spellings=SPELLINGS,
    explain=explained,
    respell=respelled,
    inherited=STUDENT_KEYS,
    not_learned=NOT_LEARNED,
    local=LOCAL_KEYS,
    weights=WEIGHTS_KEYS,
)
