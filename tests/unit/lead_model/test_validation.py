"""Held-out routes are whole, are never trained on, and are measured as they were recorded."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from lead_testing.on_demand_cache import OnDemandCache
from lead_testing.sample_batches import random_batch
from lead_trainer.contract.step import StepContext
from lead_trainer.errors import BadConfig
from lead_trainer.example_worlds.lead.tree import write_example_tree
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.config_values import load_config
from lead_trainer.recipes.lead.gpu_names import lead_precision
from lead_trainer.recipes.lead.losses import compute_losses
from lead_trainer.recipes.lead.recipe import RECIPE

assert RECIPE.validation is not None
VALIDATION = RECIPE.validation
Caches = Mapping[str, OnDemandCache]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Caches:
    root = tmp_path_factory.mktemp("validation") / "carla_leaderboard2"
    write_example_tree(root, routes=4, frames=4, seed=0)
    return {"carla": OnDemandCache(root, {"preset": "demo"}, ["full_pretrain"])}


def config(**values: Any) -> LeadConfig:
    return load_config(values, "demo")


def routes(samples: Any) -> set[str]:
    return {samples.name(index).rsplit(" frame ")[0] for index in samples.epoch_draw(0)}


def test_every_route_is_on_one_side_whatever_the_seed(cache: Caches) -> None:
    sides = []
    for seed in (0, 1):
        values = config(validation_fraction=0.5, seed=seed)
        trained, held = RECIPE.samples(values, cache), VALIDATION.samples(values, cache)
        assert held is not None
        assert routes(trained) & routes(held) == set()
        assert routes(trained) | routes(held) == routes(RECIPE.samples(config(), cache))
        assert len(trained) + len(held) == len(RECIPE.samples(config(), cache))
        sides.append(routes(held))
    assert sides[0] == sides[1]


def test_a_town_is_held_out_whole(cache: Caches) -> None:
    every = routes(RECIPE.samples(config(), cache))
    town = next(part for part in sorted(every)[0].split("_") if part.startswith("Town"))
    held = VALIDATION.samples(config(validation_towns=[town]), cache)
    assert held is not None
    assert routes(held) == {route for route in every if town in route}
    assert routes(RECIPE.samples(config(validation_towns=[town]), cache)) == every - routes(held)


def test_held_out_samples_have_no_chance_in_them(cache: Caches) -> None:
    values = config(validation_fraction=0.5, use_color_aug_prob=1.0, use_sensor_perburtation_prob=1.0)
    held = VALIDATION.samples(values, cache)
    assert held is not None
    first, later = held.load(0, 0), held.load(0, 7)
    assert not first["perturbate_sensor"]
    np.testing.assert_array_equal(first["rgb"], later["rgb"])


def test_a_split_that_leaves_nothing_is_refused(cache: Caches) -> None:
    for values in (config(validation_towns=["Town"]), config(validation_towns=["Nowhere"])):
        with pytest.raises(BadConfig, match=r"leave no route of full_pretrain for (training|validation)"):
            RECIPE.samples(values, cache)


def test_no_split_is_asked_for_by_default(cache: Caches) -> None:
    assert VALIDATION.samples(config(), cache) is None


def test_what_is_measured_is_loss_metrics_and_overlap_of_classes() -> None:
    values = config(use_planning_decoder=True)
    torch.manual_seed(0)
    model, batch = RECIPE.model(values, {}).eval(), random_batch(values)
    totals = VALIDATION.evaluate(model, batch, StepContext(config=values)).totals
    with torch.no_grad():
        predictions = model(batch)
        report = compute_losses(values, predictions, batch)
    value, count = totals["loss"]
    assert float(value) / int(count) == pytest.approx(report.total.item())
    assert {"waypoints_ade", "route_fde", "radar_loss", "loss_semantic"} <= totals.keys()
    guess = predictions.bev_semantic.argmax(dim=1)
    agree, union = totals["bev_semantic_iou_3"]
    both = (guess == 3) & (batch["bev_semantic"] == 3)
    either = (guess == 3) | (batch["bev_semantic"] == 3)
    assert (int(agree), int(union)) == (int(both.sum()), int(either.sum()))
    told = VALIDATION.summary(values, {"bev_semantic_iou_0": 0.5, "bev_semantic_iou_1": 1.0, "loss": 2.0})
    assert told["bev_semantic_miou"] == 0.75
    assert (
        VALIDATION.summary(values, {"bev_semantic_iou_0": 0.5, "bev_semantic_iou_1": float("nan")})["bev_semantic_miou"]
        == 0.5
    )  # a class that never occurs


@pytest.mark.parametrize(
    ("name", "precision"),
    [("NVIDIA A100-SXM4-80GB", "bf16"), ("NVIDIA L40S", "bf16"), ("NVIDIA GeForce RTX 2080 Ti", "fp32"), ("", "fp32")],
)
def test_leads_table_of_gpus_decides_where_it_is_asked(name: str, precision: str) -> None:
    assert lead_precision(name) == precision
    if name:
        assert config(precision="lead", gpu_name=name).number_format == precision


def test_a_gpu_that_leads_table_lacks_is_named_with_what_to_do() -> None:
    with pytest.raises(
        BadConfig, match=r"gpu_name: found 'NVIDIA H200', which is not in LEAD's table .*precision to auto"
    ):
        lead_precision("NVIDIA H200")
