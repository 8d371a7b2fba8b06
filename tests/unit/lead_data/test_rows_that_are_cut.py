"""Pictures recorded higher than a run trains on lose their lower rows and nothing else, as on LEAD's NavSim rig."""

from typing import Any

import cv2
import numpy as np
import pytest
import torch

from lead_testing import shared_dir
from lead_testing.on_demand_cache import OnDemandCache
from lead_trainer.recipes.lead.config_values import load_config
from lead_trainer.recipes.lead.dataset import LeadSamples
from lead_trainer.recipes.lead.dataset_collate import collate
from lead_trainer.recipes.lead.device_work import finished

ROOT = shared_dir() / "golden/lead_data/carla_leaderboard2"
HEIGHT = 352  # of 384 recorded rows


def sample_of(values: dict[str, Any]) -> dict[str, Any]:
    config = load_config({"use_color_aug": False, **values})
    samples = LeadSamples(config, OnDemandCache(ROOT, values, ["full_pretrain"]))
    batch = finished(collate([samples.sample(0, perturbed=False)]), config)
    return {key: value[0] for key, value in batch.items()}


@pytest.mark.parametrize("key", ["rgb", "semantic", "depth"])
def test_the_upper_rows_are_those_of_the_whole_picture(key: str) -> None:
    whole, cut = (sample_of(values)[key] for values in ({}, {"image_height": HEIGHT}))
    assert cut.shape[-2:] == (HEIGHT, 1152)
    rows = whole[..., :HEIGHT, :]
    assert torch.equal(cut, rows) if key != "depth" else torch.allclose(cut, rows, atol=1e-4)


def test_depth_of_smaller_pictures_is_averaged_in_metres() -> None:
    values = {"image_height": 32, "image_width": 96}
    sample = sample_of(values)
    stored = cv2.imread(str(next(ROOT.glob(f"data/*/{sample['route_number']}/depth/{sample['frame_number']}.png"))), -1)
    metres = stored.astype(np.float32).reshape(32, 3, 96, 3).mean(axis=(1, 3)) * 50 / 255
    np.testing.assert_allclose(sample["depth"], metres, rtol=1e-5)
