"""LEAD's key for resuming a run, `continue_failed_training`; ours is `resume=auto`, the default."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lead_trainer.errors import BadConfig
from lead_trainer.local.store import PRIVATE_FOLDER
from lead_trainer.recipes.lead.config import LeadConfig

CONTINUE = "continue_failed_training"


def reject_contradictory_resume_keys(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the given keys; raises BadConfig where LEAD's key and `resume=never` contradict each other."""
    if given.get(CONTINUE) is True and given.get("resume") == "never":
        raise BadConfig(f"{CONTINUE}: found true beside resume=never; keep one of them")
    return given


def refuse_weights_alone(config: LeadConfig, load_file: Path | None, logdir: Path) -> None:
    """Raises BadConfig where a run shall be continued of which there is nothing but the weights in `load_file`.

    LEAD reads the optimizer and the epoch from the files beside them; ours have a manifest, and no run without one is
    continued.
    """
    if not config.continue_failed_training or load_file is None:
        return
    own = (load_file.parent / PRIVATE_FOLDER).is_dir() and load_file.parent.resolve() != logdir.resolve()
    raise BadConfig(
        f"{CONTINUE}: found true, but logdir {logdir} holds no checkpoint of `lead train`, and of load_file "
        f"{load_file} only the weights can be read: the run would begin again at epoch 0. "
        + (f"To continue that run set logdir={load_file.parent}; to" if own else "To")
        + " begin a run from these weights give load_file alone, with a new logdir"
    )
