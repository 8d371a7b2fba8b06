"""A package of somebody else's adds a recipe by an entry point, with no change here; the engine knows none by name."""

import ast
import os
import subprocess
import sys
from pathlib import Path

from lead_protocol.manifests import CheckpointManifest

TRAINER = Path(__file__).parents[3] / "trainer/lead_trainer"

PACKAGE = '''
"""Fits a line to points; everything a recipe needs, on one screen."""
import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from lead_trainer.engine.optim import AdamWSettings, make_adamw
from lead_trainer.engine.schedule import cosine
from lead_trainer.errors import BadConfig
from lead_trainer.recipes.recipe import StageShape, StepOutput

class Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    seed: int = 0
    epochs: int = 2
    batch_size: int = 4
    slope: float = 3.0

class Points:
    def __init__(self, config):
        self.config = config
    def __len__(self):
        return 32
    def epoch_draw(self, epoch):
        return np.arange(32)
    def load(self, index, epoch):
        x = np.float32(index / 16 - 1)
        return {"x": x, "y": np.float32(self.config.slope * x)}

class Line:
    name, config_model, preparation = "line", Config, None
    def presets(self):
        return []
    def config(self, values, preset=""):
        try:
            return Config.model_validate(dict(values))
        except ValidationError as error:
            raise BadConfig(str(error)) from error
    def shape(self, config):
        return StageShape(
            seed=config.seed, batch_size=config.batch_size, collection="points", precision="fp32", deterministic=True,
            sync_batchnorm=False, compile=False, grad_clip_norm=0.0, scalars_every_steps=1, pictures_every_steps=0,
            loader_threads=1, ema_decay=0.9, accumulate_steps=2)
    def samples(self, config, cache):
        return Points(config)
    def collate(self, samples):
        return {key: torch.tensor(np.stack([sample[key] for sample in samples])) for key in samples[0]}
    def model(self, config):
        return torch.nn.Linear(1, 1)
    def load_initial_weights(self, model, config, state):
        model.load_state_dict(state)
    def optimizer(self, model, config):
        return make_adamw(model, AdamWSettings(lr=0.1, weight_decay=0.0))
    def lr_factor(self, config, step, steps_per_epoch, epochs):
        return cosine(steps_per_epoch * epochs)(step)
    def step(self, model, batch, config):
        return StepOutput(torch.nn.functional.mse_loss(model(batch["x"][:, None])[:, 0], batch["y"]))
    def picture(self, config, batch, outputs):
        return None
    def checkpoint_names(self, epoch):
        parts = ("model", "optimizer", "scheduler", "scaler")
        return {part: f"{part}_{epoch:04d}.pth" for part in parts} | {"skipped": f"skipped_{epoch:04d}.txt"}

RECIPE = Line()
'''


def install(site: Path) -> Path:
    """Lays the package out as pip does."""
    (site / "line_recipe").mkdir(parents=True)
    (site / "line_recipe/__init__.py").write_text(PACKAGE)
    info = site / "line_recipe-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: line-recipe\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[lead.recipes]\nline = line_recipe:RECIPE\n")
    return site


def lead(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "lead_trainer", *words], env=environ, capture_output=True, text=True, timeout=300
    )


def test_an_installed_package_is_a_recipe_like_ours(tmp_path: Path) -> None:
    site, logdir = install(tmp_path / "site"), tmp_path / "out"
    assert len([line for line in PACKAGE.splitlines() if line.strip()]) < 66
    ended = lead(site, "train", "recipe=line", f"logdir={logdir}", "epochs=3", "slope=2.0")
    assert ended.returncode == 0, ended.stderr
    shown = {path.name for path in logdir.iterdir()}
    assert {"config.json", "model_0002.pth", "ema_0002.pth", "optimizer_0002.pth", "skipped_0002.txt"} <= shown
    keys = sorted((logdir / ".lead").rglob("manifest/*.json"))
    newest = CheckpointManifest.model_validate_json(keys[-1].read_bytes())
    assert (newest.recipe, newest.step, newest.epoch) == ("line", 12, 3)
    unknown = lead(site, "train", "recipe=lime", f"logdir={logdir}")
    assert unknown.returncode != 0 and "did you mean 'line'?" in unknown.stderr
    assert "Traceback" not in ended.stderr + unknown.stderr


def test_the_engine_imports_no_recipe() -> None:
    shared = [TRAINER / "loop.py", *(TRAINER / "engine").glob("*.py"), *(TRAINER / "report").glob("*.py"),
              *(TRAINER / "data").glob("*.py"), *(TRAINER / "blocks").glob("*.py")]  # fmt: skip
    imported = {
        (path.name, node.module)
        for path in shared
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lead_trainer.recipes")
    }
    assert {module for _, module in imported} == {"lead_trainer.recipes.recipe"}
