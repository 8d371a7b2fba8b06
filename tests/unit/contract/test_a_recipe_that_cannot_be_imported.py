"""A package of somebody else that fails at import: named where it is asked for, and no harm to the other recipes."""

import json
from collections.abc import Iterator
from importlib import invalidate_caches
from pathlib import Path

import pytest

from lead_trainer.cli import main
from lead_trainer.commands.export import _fit_for_evaluation
from lead_trainer.contract.checked_parts import BadPart
from lead_trainer.contract.installed import load_recipe, other_recipes
from lead_trainer.local.foreign_document import recipes_of


@pytest.fixture(autouse=True)
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Installs a recipe `broken` whose module raises in line 2."""
    site = tmp_path / "site"
    about = site / "broken-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[lead.recipes]\nbroken = broken_recipe:RECIPE\n")
    (site / "broken_recipe.py").write_text("LIMIT = 3\nraise RuntimeError(f'no licence for {LIMIT} GPUs')\n")
    monkeypatch.syspath_prepend(str(site))
    invalidate_caches()
    yield


def test_asked_for_it_the_error_names_recipe_package_and_line() -> None:
    with pytest.raises(BadPart) as caught:
        load_recipe("broken")
    said = "recipe 'broken': broken_recipe:RECIPE cannot be imported: RuntimeError: no licence for 3 GPUs ("
    assert str(caught.value).startswith(said) and "broken_recipe.py, line 2)" in str(caught.value)


def test_on_the_command_line_it_is_one_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["train", "recipe=broken", f"logdir={tmp_path / 'out'}"]) == 64
    said = capsys.readouterr()
    assert "cannot be imported" in said.err + said.out and "Traceback" not in said.err + said.out


def test_the_other_recipes_are_found_without_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert {"lead", "distill", "world", "nuplan"} <= {recipe.name for recipe in other_recipes("broken")}
    names = {recipe.name for recipe in other_recipes("lead")}
    assert {"distill", "world", "nuplan"} <= names and "broken" not in names
    document = json.loads(json.dumps(load_recipe("world").config({}).model_dump(mode="json")))
    assert recipes_of(document) == ["world"]


def test_a_key_of_another_recipe_is_advised_all_the_same(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["train", "data.frames=sweeps", f"logdir={tmp_path / 'out'}"]) == 64
    said = capsys.readouterr()
    assert ": add recipe=" in said.err + said.out


def test_weights_of_it_are_exported_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.json"
    config.write_text("{}")
    _fit_for_evaluation("broken", config)
    assert config.read_text() == "{}" and "cannot be imported" in capsys.readouterr().out
