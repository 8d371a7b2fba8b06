"""Whether a run's config fits the engine and its model can be made, and how many parameters it has."""

from dataclasses import dataclass
from pathlib import Path

from lead_trainer.contract.recipe import no_facts
from lead_trainer.engine.attempt.config_check import check_config, check_model
from lead_trainer.engine.samples.data_facts import known_facts
from lead_trainer.engine.step.recipe_parts import made_model
from lead_trainer.errors import BadConfig
from lead_trainer.local.preflight.finding import Finding
from lead_trainer.local.run import LocalRun

CHECK = "model"


@dataclass(frozen=True)
class ModelCheck:
    """What was found."""

    finding: Finding
    parameters: int | None = None
    unknown: str = ""  # why there is no number of them


def check_model_of(run: LocalRun) -> ModelCheck:
    """Makes the model once, with its helpers and optimizers, as the first attempt will."""
    recipe, config = run.recipe, run.config
    try:
        check_config(recipe, config, epochs=config.epochs, ranks=1)
        check_model(recipe, config, Path(run.keys.load_file) if run.keys.load_file else None)
        if recipe.facts is not no_facts and recipe.facts_without_data is None:
            finding = Finding(CHECK, "ok", "the config is valid; the model is made of facts of the data")
            return ModelCheck(finding, unknown="the model is made of facts of the data")
        assumed = recipe.facts_without_data(config) if recipe.facts_without_data else {}
        model = made_model(recipe, config, known_facts(recipe, assumed, "facts_without_data"))
    except BadConfig as error:
        return ModelCheck(Finding(CHECK, "failed", str(error)), unknown="the model cannot be made")
    parameters = sum(one.numel() for one in model.parameters())
    return ModelCheck(Finding(CHECK, "ok", f"the config is valid; {parameters:,} parameters"), parameters)
