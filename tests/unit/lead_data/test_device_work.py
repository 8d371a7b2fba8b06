"""What the device makes of a batch equals what the cores made of its samples: cv2 and numpy, to the last bits."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from lead_testing.golden_samples import FLOATS_WITHIN
from lead_trainer.contract.samples import Sample
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.config_values import load_config
from lead_trainer.recipes.lead.dataset import DEPTH_CODES, depth_metres, is_usual_depth, used_columns
from lead_trainer.recipes.lead.recipe import RECIPE, on_device

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]


def stored(config: LeadConfig, seed: int, depth: npt.NDArray[Any] | None = None) -> Sample:
    """A sample as `load` gives it; `depth`: codes of another kind than usual."""
    noise, used = np.random.default_rng(seed), np.flatnonzero(config.used_cameras)
    sample: Sample = {
        "index": seed,
        "rgb": noise.integers(0, 256, (config.image_height, config.final_image_width, 3), np.uint8),
        "rasterized_lidar": noise.integers(0, config.hist_max_per_pixel + 1, (1, 8, 12), np.uint8),
    }
    usual = noise.integers(0, 256, (config.image_height // 4, config.image_width // 4), np.uint8)
    if depth is None:
        return {**sample, DEPTH_CODES: usual}
    return {**sample, "depth": used_columns(depth_metres(depth, config), used, config)}


def on_cores(sample: Sample, config: LeadConfig) -> dict[str, npt.NDArray[Any]]:
    """Returns the finished entries of one sample, without torch."""
    used = np.flatnonzero(config.used_cameras)
    levels = (np.arange(256) / config.hist_max_per_pixel).astype(np.float32)
    metres = depth_metres(sample[DEPTH_CODES], config) if DEPTH_CODES in sample else None
    return {
        "rgb": sample["rgb"].transpose(2, 0, 1),
        "rasterized_lidar": levels[sample["rasterized_lidar"]],
        "depth": sample["depth"] if metres is None else used_columns(metres, used, config),
    }


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("cameras", [(True, True, True), (True, False, True), (False, True, False)])
@pytest.mark.parametrize("most", [1, 5, 7, 255])
def test_a_batch_finished_on_a_device_is_the_samples_finished_on_cores(
    device: str, cameras: tuple[bool, ...], most: int
) -> None:
    config = load_config({"used_cameras": cameras, "hist_max_per_pixel": most})
    samples = [stored(config, seed) for seed in range(2)]
    batch = RECIPE.collate(samples)
    before = {key: value.clone() for key, value in batch.items()}
    there = {key: value.to(device) for key, value in batch.items()}
    done = on_device(there, config)
    assert set(done) == {"index", "rgb", "rasterized_lidar", "depth"}
    assert done["rgb"].is_contiguous() and {value.device.type for value in done.values()} == {device}
    for row, sample in enumerate(samples):
        for key, expected in on_cores(sample, config).items():
            found = done[key][row].cpu().numpy()
            assert found.dtype == expected.dtype and found.shape == expected.shape
            rtol = FLOATS_WITHIN if key == "depth" else 0
            np.testing.assert_allclose(found, expected, rtol=rtol, atol=0, err_msg=key)
    assert all(torch.equal(value, batch[key]) for key, value in before.items()), "a pure function"


def test_every_depth_code_becomes_its_metres() -> None:
    config = load_config({})
    codes = np.resize(np.arange(256, dtype=np.uint8), (config.image_height // 4, config.image_width // 4))
    for code in (0, 1, 127, 254, 255):
        flat = np.full_like(codes, code)
        batch = RECIPE.collate([{**stored(config, 0), DEPTH_CODES: flat}])
        depth = on_device(batch, config)["depth"]
        assert torch.equal(depth, torch.full_like(depth, float(np.float32(code) / np.float32(255) * np.float32(50))))


def test_samples_of_other_depth_files_and_without_depth_may_share_the_batch() -> None:
    config = load_config({})
    usual = stored(config, 0)
    noise = np.random.default_rng(9)
    sixteen_bit = stored(config, 1, noise.integers(0, 1 << 16, (96, 288), np.uint16))
    full_size = stored(config, 2, noise.integers(0, 256, (384, 1152), np.uint8))
    without = {key: value for key, value in stored(config, 3).items() if key != DEPTH_CODES}
    batch = RECIPE.collate([usual, sixteen_bit, full_size, without])
    depth = on_device(batch, config)["depth"].numpy()
    np.testing.assert_allclose(depth[0], on_cores(usual, config)["depth"], rtol=FLOATS_WITHIN, atol=0)
    np.testing.assert_array_equal(depth[1], sixteen_bit["depth"])
    np.testing.assert_array_equal(depth[2], full_size["depth"])
    assert not depth[3].any(), "as in LEAD, whose collate fills what a sample lacks with zeros"


@pytest.mark.parametrize(
    ("codes", "usual"),
    [
        (np.zeros((96, 288), np.uint8), True),
        (np.zeros((96, 288), np.uint16), False),
        (np.zeros((384, 1152), np.uint8), False),
        (np.zeros((96, 384), np.uint8), False),
    ],
)
def test_only_depth_as_the_expert_stores_it_travels_as_codes(codes: npt.NDArray[Any], usual: bool) -> None:
    assert is_usual_depth(codes, load_config({})) is usual
