"""Who knows one recipe's folder finds the way in every other: the page names the rooms, and each has them."""

import re
import tomllib
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from lead_testing import PROJECT_ROOT

RECIPES = PROJECT_ROOT / "trainer/lead_trainer/recipes"
OFFERED = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["lead.recipes"]
NAMES = re.compile(r"`([a-z_]+(?:\.py|/))`")


def rooms() -> dict[str, tuple[list[str], list[str]]]:
    """Returns the doors and the folders behind them of each room, as the page's table has them."""
    page = (RECIPES / "README.md").read_text()
    table = page.partition("## Modules")[2].partition("## ")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| ") and ".py`" in line]
    return {room.strip(): (NAMES.findall(door), NAMES.findall(behind)) for room, door, _, behind in rows}


def module(name: str, door: str) -> ModuleType:
    return import_module(f"lead_trainer.recipes.{name}.{door.removesuffix('.py')}")


def test_the_page_names_four_rooms_and_every_recipe_folder_is_offered() -> None:
    assert list(rooms()) == ["config", "data", "model", "losses"]
    assert set(OFFERED) == {path.parent.name for path in RECIPES.glob("*/recipe.py")}


@pytest.mark.parametrize("name", OFFERED)
def test_a_recipe_has_every_door_and_every_folder_behind_it(name: str) -> None:
    wanted = {entry.rstrip("/") for doors, behind in rooms().values() for entry in (*doors, *behind)} | {"recipe.py"}
    assert wanted - {path.name for path in (RECIPES / name).iterdir()} == set()


@pytest.mark.parametrize("name", OFFERED)
def test_behind_a_door_is_what_its_name_says(name: str) -> None:
    recipe: Any = module(name, "recipe.py").RECIPE
    doors = {
        "config.py": recipe.config_model,
        "preparation.py": type(recipe.preparation),
        "recipe.py": recipe.step,
        "model.py": module(name, "model.py").build_model,
        "losses.py": module(name, "losses.py").compute_losses,
    }
    for door, thing in doors.items():
        assert thing.__module__ == module(name, door).__name__
    for door in ("dataset.py", "metrics.py"):
        room = module(name, door)
        assert any(getattr(thing, "__module__", "") == room.__name__ for thing in vars(room).values()), door


@pytest.mark.parametrize("benchmark", ["argoverse2", "nuscenes"])
def test_a_benchmark_has_the_rooms_that_its_page_names(benchmark: str) -> None:
    folder = RECIPES / "distill/benchmarks"
    named = re.findall(r"`([a-z]+)` \(", (folder / "__init__.py").read_text())
    assert len(named) == 4
    assert {f"{room}.py" for room in named} - {path.name for path in (folder / benchmark).iterdir()} == set()


def test_the_page_lists_every_protocol_that_a_recipe_may_have_more() -> None:
    trainer = RECIPES.parent
    there = {
        (name, path.relative_to(trainer).as_posix())
        for path in trainer.rglob("*.py")
        for name in re.findall(r"@runtime_checkable\nclass (\w+)\(Protocol\)", path.read_text())
    }
    table = (RECIPES / "README.md").read_text().partition("## What it may have more")[2].partition("## ")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| ") and "`" in line]
    listed = {(name, file.strip(" `")) for _, names, _, file in rows for name in re.findall(r"`(\w+)`", names)}
    assert listed == there
