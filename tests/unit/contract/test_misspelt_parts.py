"""A recipe with a misspelt, missing or wrongly typed part is refused at import, with the name that is near."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from lead_testing import toy_recipe
from lead_testing.bytes_recipe import BytesPreparation
from lead_trainer.contract.checked_parts import BadPart
from lead_trainer.contract.files import Files
from lead_trainer.contract.keys import Keys
from lead_trainer.contract.preparation import Preparation
from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.reports import Reports, Tags, WatchRule
from lead_trainer.contract.samples import Samples
from lead_trainer.contract.trees import Trees
from lead_trainer.contract.validation import Validation

RECIPE: Any = Recipe  # a misspelling is a type error too, which is not what is tried here
WHOLE: dict[str, Any] = {
    "name": "toy",
    "config_model": toy_recipe.ToyConfig,
    "samples": toy_recipe.samples,
    "model": toy_recipe.model,
    "step": toy_recipe.step,
    "optimizer": toy_recipe.optimizer,
}


def without(part: str) -> dict[str, Any]:
    return {name: value for name, value in WHOLE.items() if name != part}


def a_class(base: type, body: dict[str, Any]) -> Callable[[], Any]:
    return lambda: type("Mine", (base,), body)


def parts(kind: Any, **values: Any) -> Callable[[], Any]:
    return lambda: kind(**values)


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid")
    crop: int = 3


class Sectioned(toy_recipe.ToyConfig):
    data: Section = Section()


class Taken(toy_recipe.ToyConfig):
    keep_last: int = 7


def named_key(**keys: Any) -> Callable[[], Any]:
    return lambda: RECIPE(**{**WHOLE, "config_model": Sectioned}, keys=Keys(**keys))


rule_of_two: Any = lambda history, epoch: None  # noqa: E731


MISTAKES: list[tuple[Callable[[], Any], str]] = [
    # misspelt parts of a recipe and of its groups
    (
        parts(RECIPE, **WHOLE, lr_factr=toy_recipe.lr_factor),
        r"Recipe 'toy': there is no part 'lr_factr'.*'lr_factor'",
    ),
    (parts(RECIPE, **WHOLE, validate=None), "did you mean 'validation'"),
    (parts(RECIPE, **WHOLE, colate=None), "did you mean 'collate'"),
    (parts(RECIPE, **WHOLE, load_inital_weights=None), "did you mean 'load_initial_weights'"),
    (parts(RECIPE, **WHOLE, preperation=None), "did you mean 'preparation'"),
    (parts(RECIPE, **WHOLE, shape=None), "there is no part 'shape'"),
    (parts(Validation, samples=toy_recipe.validation_samples, evaluat=toy_recipe.evaluate), "did you mean 'evaluate'"),
    (parts(Keys, not_learnt=frozenset()), "did you mean 'not_learned'"),
    (parts(Files, name=lambda config, at: {}), "did you mean 'names'"),
    (parts(Trees, colections=lambda config: []), "did you mean 'collections'"),
    (parts(Reports, watch_rule=lambda config: []), "did you mean 'watch_rules'"),
    (parts(Tags, metric="m/"), "did you mean 'metrics'"),
    # parts that are not there
    (parts(RECIPE, **without("optimizer")), "Recipe 'toy': lacks 'optimizer'"),
    (parts(Validation, samples=toy_recipe.validation_samples), "Validation: lacks 'evaluate'"),
    (lambda: RECIPE("toy"), "found 1 values without a name; name each part"),
    # parts of a wrong type
    (parts(RECIPE, **{**WHOLE, "name": 7}), "part 'name': found 7, expected a text"),
    (parts(RECIPE, **{**WHOLE, "config_model": dict}), "part 'config_model': found class dict, .* TrainingKeys"),
    (parts(RECIPE, **{**WHOLE, "step": "step"}), "part 'step': found 'step', expected a function"),
    (
        parts(RECIPE, **{**WHOLE, "step": lambda model, batch: 0}),
        "part 'step': .* of .*'batch'.*expected 3",
    ),
    (parts(RECIPE, **{**WHOLE, "model": lambda config: 0}), "part 'model': .* expected 2 arguments"),
    (parts(RECIPE, **WHOLE, preparation=toy_recipe), "part 'preparation': found module, expected a Preparation"),
    (
        parts(RECIPE, **WHOLE, validation=toy_recipe.evaluate),
        "part 'validation': .* expected a Validation",
    ),
    (parts(RECIPE, **WHOLE, keys={"local": {}}), "part 'keys': found dict, expected a Keys"),
    (parts(Keys, not_learned=["logdir"]), "part 'not_learned': found list, expected a set"),
    (parts(Keys, not_learned="logdir"), "part 'not_learned': found 'logdir', expected a set"),
    (parts(Keys, local=["logdir"]), "part 'local': found list, expected a mapping"),
    (parts(Tags, parts=3), "part 'parts': found 3, expected a text"),
    # keys that a recipe names and its config has not
    (named_key(inherited=frozenset({"layers.width"})), "keys.inherited: the config has no key 'layers.width'"),
    (named_key(inherited=frozenset({"data.croop"})), "no key 'data.croop'; did you mean 'data.crop'"),
    (named_key(not_learned=frozenset({"dropot"})), "keys.not_learned: .* no key 'dropot'; did you mean 'dropout'"),
    (named_key(local={"lode_file": "spec"}), "keys.local: .* no key 'lode_file'; did you mean 'load_file'"),
    (named_key(weights=frozenset({"load_fil"})), "keys.weights: .*did you mean 'load_file'"),
    (named_key(spellings={"rate": "lrr"}), "keys.spellings: the config has no key 'lrr'; did you mean 'lr'"),
    (named_key(presets={"wide": {"data": {"corp": 1}}}), r"presets\['wide'\]: .*'data.corp'; did you mean 'data.crop'"),
    (lambda: RECIPE(**{**WHOLE, "config_model": Taken}), "config_model: the key 'keep_last' is one of every run"),
    (lambda: WatchRule("Loss stands!", lambda history: None), "found the name 'Loss stands!', expected up to 40"),
    (lambda: WatchRule("loss-stands", rule_of_two), "'loss-stands': check: .*expected 1 arguments"),
    # classes that derive from a base of the contract
    (a_class(Preparation, {"colections_for": lambda self, config: ()}), "no 'colections_for'; .*'collections_for'"),
    (a_class(Preparation, {"route_meta": lambda self, *more: ()}), "did you mean 'route_metas'"),
    (a_class(Preparation, {"reads": ("data/",)}), "'reads' is a method of Preparation, found a value"),
    (a_class(Samples, {"epoch_drawn": lambda self, epoch: ()}), "did you mean 'epoch_draw'"),
    (a_class(Samples, {"shard_of": lambda self, indices: ()}), "did you mean 'shards_of'"),
    (a_class(Samples, {"__annotations__": {"name": str}}), "'name' is a method of Samples, found a value"),
    (a_class(Samples, {"load": lambda self, index: {}}), r"'load' takes \['index'\], expected .*\['index', 'epoch'\]"),
]


@pytest.mark.parametrize(("mistake", "told"), MISTAKES, ids=lambda value: value if isinstance(value, str) else "")
def test_a_mistake_is_refused_where_it_is_written(mistake: Callable[[], Any], told: str) -> None:
    with pytest.raises(BadPart, match=told):
        mistake()


def test_a_preparation_says_its_version_and_its_collections() -> None:
    class Unversioned(BytesPreparation):
        version: Any = None

    with pytest.raises(BadPart, match=r"preparation\.version: found None, expected a str"):
        replace(toy_recipe.RECIPE, preparation=Unversioned(version=None))


def test_helpers_of_ones_own_are_nobodys_misspelling() -> None:
    class Mine(Samples):
        count = 3
        classes = ("car",)

        def __len__(self) -> int:
            return self.count

        def epoch_draw(self, epoch: int) -> Any:
            return range(self.count)

        def load(self, index: int, epoch: int) -> dict[str, Any]:
            return {"x": index}

        def picture_of(self, index: int) -> Path:
            return Path(str(index))

    assert Mine().name(2) == "2" and Mine().shards_of(Mine().epoch_draw(0)) is None


def test_a_recipe_is_frozen_and_another_is_made_of_it() -> None:
    plain: Any = toy_recipe.RECIPE
    with pytest.raises(AttributeError):
        plain.name = "other"
    assert replace(plain, name="other").name == "other" and plain.name == "toy"
    with pytest.raises(BadPart, match="part 'step'"):
        replace(plain, step=None)
