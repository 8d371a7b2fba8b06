"""How values become a `NuplanConfig`: presets, and which keys count where."""

from lead_trainer.contract.keys import Keys
from lead_trainer.recipes.nuplan.config import NuplanConfig

PACKAGE = "lead_trainer.recipes.nuplan"

NOT_LEARNED = frozenset({"data_root", "use_wandb", "wandb_name"})
LOCAL_KEYS = {"data_root": "the stage's datasets", "use_wandb": "spec.logging.wandb"}

KEYS = Keys[NuplanConfig](
    presets=PACKAGE,
    inherited=frozenset({"model"}),
    not_learned=NOT_LEARNED,
    local=LOCAL_KEYS,
    weights=frozenset({"backbone_weights"}),
)
