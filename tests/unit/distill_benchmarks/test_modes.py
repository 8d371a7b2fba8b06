"""Both benchmarks train and validate through the recipe like its own clips do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lead_trainer.errors import BadConfig
from lead_trainer.recipes.distill.modes import mode_of
from lead_trainer.recipes.distill.preparation import DistillPreparation
from lead_trainer.recipes.distill.recipe import RECIPE

KEYS: dict[str, dict[str, Any]] = {
    "argoverse2": {"input_type": "vector", "max_agents": 8, "max_polylines": 16},
    "nuscenes": {"input_type": "raster", "nuscenes_version": "v1.0-mini", "raster_pixels": 64},
}


@pytest.mark.parametrize("benchmark", KEYS)
@pytest.mark.parametrize(("modes", "loss"), [(1, "wta"), (6, "wta"), (6, "nll")])
def test_d_39_d_41_a_benchmark_trains_and_validates_with_every_mode(
    benchmark: str, modes: int, loss: str, argoverse2_tree: Path, nuscenes_tree: Path, build_cache: Callable[..., Any]
) -> None:
    root = {"argoverse2": argoverse2_tree, "nuscenes": nuscenes_tree}[benchmark]
    values = {"model": "baseline", "model_size": "tiny", "benchmark": benchmark, f"{benchmark}_root": str(root),
              "num_modes": modes, "multimodal_loss": loss, **KEYS[benchmark]}  # fmt: skip
    config = RECIPE.config(values)
    cache = build_cache(DistillPreparation(), root, list(RECIPE.collections(config)), values)
    torch.manual_seed(0)
    model = RECIPE.model(config)
    samples = RECIPE.samples(config, cache)
    batch = RECIPE.collate([samples.load(index, 0) for index in range(2)])
    before = RECIPE.step(model, batch, config)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    before.loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    assert RECIPE.step(model, batch, config).loss < before.loss
    held_out = RECIPE.validation_samples(config, cache)
    with torch.no_grad():
        totals = RECIPE.evaluate(model.eval(), RECIPE.collate([held_out.load(0, 0)]), config).totals
    assert {"minADE_1", "minADE_1_bestFDE", "MR_1", "brier_minFDE_1"} <= set(totals)
    assert ("minADE_6" in totals) == (modes == 6)
    assert any(tag.startswith(f"minFDE_{modes}/") for tag in totals)
    assert all(count == 1 for tag, (_, count) in totals.items() if tag.startswith("min"))


@pytest.mark.parametrize("benchmark", KEYS)
def test_d_39_a_benchmark_without_its_root_is_refused(benchmark: str) -> None:
    config = RECIPE.config({"model": "baseline", "benchmark": benchmark, "input_type": KEYS[benchmark]["input_type"]})
    with pytest.raises(BadConfig, match=f"{benchmark}_root: is not set"):
        mode_of(benchmark).source_root(config)
