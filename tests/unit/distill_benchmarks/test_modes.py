"""Both benchmarks train and validate through the recipe like its own clips do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lead_testing.forecasting_trees import write_argoverse2_tree, write_sensor_log
from lead_trainer.contract.step import StepContext
from lead_trainer.engine.samples.dataset import Dataset
from lead_trainer.engine.samples.stage_samples import limited
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.recipes.distill.modes import mode_of
from lead_trainer.recipes.distill.preparation import DistillPreparation
from lead_trainer.recipes.distill.recipe import RECIPE, collections

assert RECIPE.validation is not None
VALIDATION = RECIPE.validation
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
    cache = build_cache(DistillPreparation(), root, list(collections(config)), values)
    torch.manual_seed(0)
    caches = {"local": cache}
    context = StepContext(config=config, facts=RECIPE.facts(config, caches))
    model = RECIPE.model(config, context.facts)
    samples = RECIPE.samples(config, caches)
    batch = RECIPE.collate([samples.load(index, 0) for index in range(2)])
    before = RECIPE.step(model, batch, context)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    before.loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    assert RECIPE.step(model, batch, context).loss < before.loss
    held_out = VALIDATION.samples(config, caches)
    assert held_out is not None
    with torch.no_grad():
        totals = VALIDATION.evaluate(model.eval(), RECIPE.collate([held_out.load(0, 0)]), context).totals
    assert {"minADE_1", "minADE_1_bestFDE", "MR_1", "brier_minFDE_1"} <= set(totals)
    assert ("minADE_6" in totals) == (modes == 6)
    assert any(tag.startswith(f"minFDE_{modes}/") for tag in totals)
    assert all(count == 1 for tag, (_, count) in totals.items() if tag.startswith("min"))


def argoverse2_run(root: Path, **values: Any) -> Any:
    return RECIPE.config({"model": "baseline", "model_size": "tiny", "benchmark": "argoverse2",
                          "argoverse2_root": str(root), **KEYS["argoverse2"], **values})  # fmt: skip


def test_windows_are_validated_on_focal_tracks_or_on_windows_where_there_are_none(
    argoverse2_tree: Path, build_cache: Callable[..., Any], tmp_path: Path
) -> None:
    for split in ("train", "val"):
        write_sensor_log(tmp_path / split / f"log-{split}")
    for root, names in ((argoverse2_tree, {"focal"}), (tmp_path, {"t0", "t1", "t2"})):
        config = argoverse2_run(root, all_agents=True)
        cache = build_cache(DistillPreparation(), root, list(collections(config)), config.model_dump())
        held_out: Any = VALIDATION.samples(config, {"local": cache})
        assert {held_out.load(index, 0)["track_id"] for index in range(len(held_out))} == names


def test_an_empty_validation_split_is_refused_before_the_first_epoch(
    build_cache: Callable[..., Any], tmp_path: Path
) -> None:
    write_argoverse2_tree(tmp_path, {"train": 2})
    config = argoverse2_run(tmp_path)
    cache = build_cache(DistillPreparation(), tmp_path, list(collections(config)), config.model_dump())
    dataset = Dataset(RECIPE.samples(config, {"local": cache}), None, {"local": cache})
    with pytest.raises(BadData, match="the validation split holds no sample"):
        limited(RECIPE, config, dataset)


@pytest.mark.parametrize("benchmark", KEYS)
def test_d_39_a_benchmark_without_its_root_is_refused(benchmark: str) -> None:
    config = RECIPE.config({"model": "baseline", "benchmark": benchmark, "input_type": KEYS[benchmark]["input_type"]})
    with pytest.raises(BadConfig, match=f"{benchmark}_root: is not set"):
        mode_of(benchmark).source_root(config)
