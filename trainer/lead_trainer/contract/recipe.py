"""A training system as one value; everything else is written once, in the engine, the data path and the loop."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic

from lead_trainer.contract.benchmark import Benchmark
from lead_trainer.contract.checked_parts import BadPart, checked_parts
from lead_trainer.contract.config_values import names_in
from lead_trainer.contract.files import Files
from lead_trainer.contract.keys import Keys
from lead_trainer.contract.named_keys import refuse_taken_keys, refuse_unknown_keys
from lead_trainer.contract.preparation import Preparation
from lead_trainer.contract.reports import Reports
from lead_trainer.contract.samples import Batch, Caches, Sample, Samples, stacked
from lead_trainer.contract.step import ConfigT, Facts, Position, StepContext, StepOutput
from lead_trainer.contract.training_keys import sections_of
from lead_trainer.contract.trees import Trees
from lead_trainer.contract.validation import Validation
from lead_trainer.errors import BadConfig

if TYPE_CHECKING:
    import torch


def constant_rate(config: Any, at: Position) -> float:
    """Returns 1 at every step."""
    return 1.0


def no_facts(config: Any, caches: Caches) -> Facts:
    """Returns nothing."""
    return {}


def load_strictly(model: Any, config: Any, facts: Facts, state: Mapping[str, "torch.Tensor"]) -> None:
    """Loads weights that fit the model name for name and shape for shape; raises BadConfig for others."""
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise BadConfig(f"load_file: its weights are of another model: {str(error).splitlines()[1].strip()}") from error


@checked_parts
@dataclass(frozen=True, kw_only=True)
class Recipe(Generic[ConfigT]):
    """One training system. The first six parts must be there; each other part has a default that does nothing."""

    #: The name users write: `recipe=…`, `spec.recipe`.
    name: str
    #: The class of its config, derived from `TrainingKeys`.
    config_model: type[ConfigT]
    #: The stage's samples from its caches; raises BadConfig where there is no cache and the config needs one.
    samples: Callable[[ConfigT, Caches], Samples]
    #: The model, initialised from the global torch generator.
    model: "Callable[[ConfigT, Facts], torch.nn.Module]"
    #: Forward pass and losses of one batch; the model may be wrapped by DDP.
    step: "Callable[[torch.nn.Module, Batch, StepContext[ConfigT]], StepOutput]"
    #: The optimizer with its parameter groups, or several by name: the step is then asked for each one's loss in turn,
    #: by `context.optimizer`, and the reported loss is their sum.
    optimizer: "Callable[[torch.nn.Module, ConfigT], torch.optim.Optimizer | Mapping[str, torch.optim.Optimizer]]"

    #: How raw files become a cache, for a recipe that reads a dataset.
    preparation: Preparation | None = None
    #: What is known of the data as a whole, JSON values: computed once when a run begins, and kept in its checkpoints.
    facts: Callable[[ConfigT, Caches], Facts] = no_facts
    #: What takes the place of facts where there are no data yet, to check a config; needed where `facts` are given and
    #: the model shall be checked before a cache is built.
    facts_without_data: Callable[[ConfigT], Facts] | None = None
    #: The factor of the learning rate at a position, or one for each parameter group by its `name`; a pure function.
    lr_factor: Callable[[ConfigT, Position], float | Mapping[str, float]] = constant_rate
    #: Samples to a batch; raises BadData naming the key that cannot be stacked.
    collate: Callable[[Sequence[Sample]], Batch] = stacked
    #: What `step` reads, from what `collate` gives, on the batch's device: what a GPU does in no time and a core not.
    on_device: Callable[[Batch, ConfigT], Batch] | None = None
    #: Loads an earlier stage's weights into a fresh model (model, config, facts, state); raises BadConfig unless they
    #: fit. Facts are empty where weights are evaluated.
    load_initial_weights: "Callable[[torch.nn.Module, ConfigT, Facts, Mapping[str, torch.Tensor]], None]" = (
        load_strictly
    )
    #: Makes the model recompute activations in the backward pass instead of keeping them.
    save_memory: "Callable[[torch.nn.Module], None] | None" = None
    #: What follows an update of the weights that was not skipped: a target network moves, for example.
    after_update: "Callable[[torch.nn.Module, StepContext[ConfigT]], None] | None" = None
    #: Frozen networks that the step uses (a perceptual loss): on the device, in no checkpoint, hash or average.
    helpers: "Callable[[ConfigT], torch.nn.Module] | None" = None
    #: The validation split and what is measured on it.
    validation: Validation[ConfigT] | None = None
    #: A measure of its own behind `lead evaluate`; default: the metrics of the validation.
    benchmark: Benchmark[ConfigT] | None = None
    #: Presets, aliases of keys, and where keys count.
    keys: Keys[ConfigT] = field(default_factory=Keys)
    #: Names of checkpoints' files.
    files: Files[ConfigT] = field(default_factory=Files)
    #: Raw data on one machine.
    trees: Trees[ConfigT] = field(default_factory=Trees)
    #: What people see of a run.
    reports: Reports[ConfigT] = field(default_factory=Reports)

    def __post_init__(self) -> None:
        for section, model in sections_of(self.config_model).items():
            if model.model_config.get("extra") != "forbid":
                where = f"section {section!r}" if section else "config_model"
                raise BadPart(
                    f"Recipe {self.name!r}: {where}: its class {model.__name__} takes unknown keys; write "
                    'model_config = ConfigDict(extra="forbid") in it'
                )
        refuse_taken_keys(self.name, self.config_model)
        refuse_unknown_keys(self.name, self.config_model, self.keys)
        if self.preparation is not None:
            for part, kind in (("version", str), ("default_collections", tuple)):
                if not isinstance(found := getattr(self.preparation, part, None), kind):
                    raise BadPart(
                        f"Recipe {self.name!r}: preparation.{part}: found {found!r}, expected a {kind.__name__}; "
                        f"write {part} = … in its class"
                    )

    @property
    def required_preparation(self) -> Preparation:
        """How raw files become a cache; raises BadConfig for a recipe that reads no dataset."""
        if self.preparation is None:
            raise BadConfig(f"recipe {self.name} reads no dataset; remove the dataset, or name another recipe")
        return self.preparation

    def presets(self) -> Sequence[str]:
        """Returns the names of the presets."""
        return names_in(self.keys.presets)

    def config(self, values: Mapping[str, Any], preset: str = "") -> ConfigT:
        """Returns the validated config: defaults < preset < values; raises BadConfig naming key and near matches."""
        return self.keys.config(self.config_model, values, preset)

    def config_document(self, config: ConfigT) -> Mapping[str, Any]:
        """Returns the JSON document of a resolved config, as `config.json` holds it."""
        if self.keys.to_document is not None:
            return self.keys.to_document(config)
        return config.model_dump(mode="json")
