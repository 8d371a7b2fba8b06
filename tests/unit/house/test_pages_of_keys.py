"""A page beside each recipe lists its keys with the same defaults, types and meanings as `lead config`."""

from pathlib import Path

import pytest

from lead_testing import PROJECT_ROOT
from lead_trainer.cli import main

RECIPES = PROJECT_ROOT / "trainer/lead_trainer/recipes"
PAGES = sorted(path.parent / "KEYS.md" for path in RECIPES.glob("*/recipe.py"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_the_page_of_keys_is_current(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["config", f"recipe={page.parent.name}", "--markdown"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    renew = f"run `lead {' '.join(command)} > {page.relative_to(PROJECT_ROOT)}`"
    assert page.read_text() == printed, renew
    linked = (PROJECT_ROOT / "trainer/README.md").read_text()
    assert f"](lead_trainer/recipes/{page.parent.name}/KEYS.md)" in linked


def test_there_is_a_page_for_every_recipe() -> None:
    assert {page.parent.name for page in PAGES} >= {"lead", "distill"}
