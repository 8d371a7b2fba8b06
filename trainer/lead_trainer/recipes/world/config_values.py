"""How values become a `WorldConfig`: presets, the guide's keys, and which keys count where.

Called by the recipe object; only `respelled`, which serves runs on this machine, reads how many processes there are.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from lead_trainer.contract.keys import Keys
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.world.config import WorldConfig
from lead_trainer.recipes.world.data_keys import NOT_LEARNED as DATA_NOT_LEARNED
from lead_trainer.recipes.world.guide_keys import in_engine_keys

PACKAGE = "lead_trainer.recipes.world"
SAVE_EVERY_STEPS = 5000  # the guide's logging.save_interval
_SAVE_KEY = "save_interval"

NOT_LEARNED = frozenset(
    {
        "backend", "data_root", "distributed", "logging.image_interval", "logging.num_samples", "use_dp", "use_wandb",
        "wandb_name", *(f"data.{name}" for name in DATA_NOT_LEARNED),
    }
)  # fmt: skip

LOCAL_KEYS = {
    "data_root": "the stage's datasets",
    "distributed": "spec.nodes and spec.procsPerNode",
    "use_wandb": "spec.logging.wandb",
}


def in_trainer_keys(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns one source of configuration under the trainer's keys; raises BadConfig for both keys of one value.

    `logging.save_interval` is a key of every run, `every_steps`.
    """
    try:
        found = in_engine_keys(given, one_source=True)
    except ValueError as error:
        raise BadConfig(str(error)) from error
    section = found.get("logging")
    if not isinstance(section, Mapping) or _SAVE_KEY not in section:
        return found
    if "every_steps" in found:
        raise BadConfig(f"every_steps is given twice, once as logging.{_SAVE_KEY}; keep one")
    found["logging"] = {key: value for key, value in section.items() if key != _SAVE_KEY}
    return {**found, "every_steps": section[_SAVE_KEY]}


def respelled(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a user gave, with the guide's checkpoints by step and the global batch of a distributed run.

    With `training.distributed` the batch size is that of one process, as in the guide's distributed.yaml; everywhere
    else it is that of all. torchrun sets their number.
    """
    values = {"every_steps": SAVE_EVERY_STEPS, **given}
    if values.get("distributed") is True:
        per_process = values.get("batch_size", WorldConfig.model_fields["batch_size"].default)
        if isinstance(per_process, int):
            values["batch_size"] = per_process * int(os.environ.get("WORLD_SIZE", "1"))
    return values


def explained(kind: str, path: Sequence[str]) -> str:
    """Returns what is wrong with a key that is a run's, and of a run in a cluster its manifest's."""
    if list(path) == ["logging", _SAVE_KEY]:
        return f"logging.{_SAVE_KEY}: in a cluster spec.checkpoint.everySteps says this; remove the key"
    return ""


KEYS = Keys[WorldConfig](
    presets=PACKAGE,
    explain=explained,
    expand=in_trainer_keys,
    respell=respelled,
    inherited=frozenset({"model"}),
    not_learned=NOT_LEARNED,
    local=LOCAL_KEYS,
    weights=frozenset({"perceptual_weights"}),
)
