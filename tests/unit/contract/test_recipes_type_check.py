"""mypy proves that each of our recipes is one, and finds a part of a wrong type."""

import os
import subprocess
import sys
from pathlib import Path

from lead_testing import PROJECT_ROOT

RIGHT = """
from lead_trainer.contract.recipe import Recipe
from lead_trainer.recipes.distill.config import DistillConfig
from lead_trainer.recipes.distill.recipe import RECIPE as DISTILL
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.recipe import RECIPE as LEAD

lead: Recipe[LeadConfig] = LEAD
distill: Recipe[DistillConfig] = DISTILL
"""
WRONG = """
from dataclasses import replace
from lead_trainer.contract.samples import Batch
from lead_trainer.contract.step import StepContext

import torch


def step(model: torch.nn.Module, batch: Batch, context: StepContext[LeadConfig]) -> float:
    return 0.0


Recipe[LeadConfig](name="a", config_model=DistillConfig, samples=LEAD.samples, model=LEAD.model, step=LEAD.step,
                   optimizer=LEAD.optimizer)
Recipe[LeadConfig](name="a", config_model=LeadConfig, samples=LEAD.samples, model=LEAD.model, step=step,
                   optimizer=LEAD.optimizer)
Recipe[LeadConfig](name="a", config_model=LeadConfig, samples=LEAD.samples, model=LEAD.model, step=LEAD.step,
                   optimiser=LEAD.optimizer)
"""


def mypy(file: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "mypy", "--config-file", str(PROJECT_ROOT / "pyproject.toml"), str(file)]
    environ = {
        **os.environ,
        "MYPYPATH": ":".join(str(PROJECT_ROOT / part) for part in ("operator", "trainer", "tests")),
    }
    return subprocess.run(words, cwd=PROJECT_ROOT, env=environ, capture_output=True, text=True, timeout=500)


def test_our_recipes_are_recipes_and_wrong_parts_are_found(tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(RIGHT)
    right = mypy(tmp_path / "right.py")
    assert right.returncode == 0, right.stdout + right.stderr
    (tmp_path / "wrong.py").write_text(RIGHT + WRONG)
    wrong = mypy(tmp_path / "wrong.py").stdout
    for told in (
        'Argument "config_model" to "Recipe"',
        'Argument "step" to "Recipe"',
        'argument "optimiser" for "Recipe"',
    ):
        assert told in wrong, wrong
