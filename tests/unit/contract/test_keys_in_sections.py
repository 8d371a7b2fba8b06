"""A key in a section is named by its path: inherited from there, and its near match is one of that section."""

from dataclasses import replace

import pytest
from pydantic import BaseModel, ConfigDict, Field

from lead_testing import toy_recipe
from lead_trainer.commands.config import keys_of
from lead_trainer.contract.checked_parts import BadPart
from lead_trainer.contract.config_values import checked
from lead_trainer.contract.training_keys import TrainingKeys, values_at
from lead_trainer.errors import BadConfig


class Data(BaseModel):
    model_config = ConfigDict(extra="forbid")
    num_workers: int = 2
    frames: int = Field(4, alias="sequence_length")


class Config(TrainingKeys):
    data: Data = Data.model_validate({})


def test_the_near_match_of_a_key_in_a_section_is_one_of_that_section() -> None:
    with pytest.raises(BadConfig, match=r"^data\.num_worker: unknown key; did you mean num_workers\?$"):
        checked(Config, {}, {"data": {"num_worker": 3}}, {})
    with pytest.raises(BadConfig, match=r"^data\.sequence_lenght: unknown key; did you mean sequence_length\?$"):
        checked(Config, {}, {"data": {"sequence_lenght": 3}}, {})


def test_a_key_of_the_top_is_not_offered_in_a_section() -> None:
    with pytest.raises(BadConfig, match=r"^data\.batch_siz: unknown key$"):
        checked(Config, {}, {"data": {"batch_siz": 3}}, {})


def test_keys_in_sections_are_taken_over_in_their_sections() -> None:
    document = {"lr": 1e-3, "data": {"num_workers": 8, "sequence_length": 6}, "other": 1}
    assert values_at(document, ["lr", "data.sequence_length", "model.width"]) == {
        "lr": 1e-3, "data": {"sequence_length": 6},
    }  # fmt: skip
    assert values_at({"data": None}, ["data.num_workers"]) == {}


class Open(BaseModel):
    crop: float = 1.0


class WithOpenSection(TrainingKeys):
    data: Open = Open()


def test_a_section_that_takes_unknown_keys_is_refused_where_the_recipe_is_made() -> None:
    with pytest.raises(BadPart, match=r"section 'data': its class Open takes unknown keys; write model_config"):
        replace(toy_recipe.RECIPE, config_model=WithOpenSection)


class Again(TrainingKeys):
    epochs: int = 3
    batch_size: int = Field(4, alias="batch")
    rate: float = 0.5


def test_a_key_of_the_engine_that_is_declared_again_keeps_its_bounds() -> None:
    assert checked(Again, {}, {"batch": 8}, {}).batch_size == 8
    with pytest.raises(BadConfig, match=r"^epochs: found 0; .*greater than or equal to 1; batch: found -8; .*1$"):
        checked(Again, {}, {"batch": -8, "epochs": 0}, {})
    (epochs,) = [key for key in keys_of(Again) if key.name == "epochs"]
    assert (epochs.type, epochs.meaning) == ("int >= 1", "length of the stage")


class Mistyped(TrainingKeys):
    rate: float = "fast"  # type: ignore[assignment]


def test_a_default_of_a_wrong_type_is_refused() -> None:
    with pytest.raises(BadConfig, match=r"^rate: found 'fast'; input should be a valid number"):
        checked(Mistyped, {}, {}, {})
