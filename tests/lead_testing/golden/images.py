"""Image metrics, losses and learning rates of the recipe `world` on input that a seed makes.

The input is `shared/golden/nuscenes_world/README.md`'s, drawn in its order; the numbers are the recipe's own.
"""

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from lead_testing.golden.picture_metrics import ssim as ssim_of_skimage
from lead_trainer.contract.step import Position
from lead_trainer.recipes.world.config import WorldConfig
from lead_trainer.recipes.world.loss_terms.perceptual import PerceptualDistance
from lead_trainer.recipes.world.loss_terms.pictures import (
    absolute_error,
    absolute_error_of_steps,
    consistency,
    mean_square,
)
from lead_trainer.recipes.world.metrics import psnr, ssim
from lead_trainer.recipes.world.schedule import lr_factor
from lead_trainer.recipes.world.validation import FeatureDistance

Floats = npt.NDArray[np.float32]
PAIRS = ("a", "b", "c", "d")
FRAMES, SIDE, WAVES = 3, 64, 6
STEPS = (0, 1, 499, 999, 1000, 1001, 25_000, 50_000, 99_999, 100_000)
FEATURES = {"near": (400, 0.1), "far": (300, 1.0), "few": (12, 0.3)}  # rows, shift
WIDTH = 16
RAMP = 0.1


def numbers(seed: str) -> dict[str, Any]:
    """Returns what the expected file of the seed holds."""
    return {
        "seed": int(seed),
        "pairs": {name: of_pair(*inputs(seed, name)) for name in PAIRS},
        "perceptual": of_perceptual(seed),
        "frechet": {name: of_features(seed, name) for name in FEATURES},
        "schedule": of_schedule(),
        "losses": of_losses(seed),
    }


def rng(text: str) -> np.random.Generator:
    """Returns the generator of a text."""
    return np.random.Generator(np.random.PCG64(zlib.crc32(text.encode())))


def inputs(seed: str, name: str) -> tuple[Floats, Floats]:
    """Returns true frames and worse ones, (3, 3, 64, 64) in [0, 1]."""
    draw = rng(f"{seed}/{name}")
    y, x = np.mgrid[0:SIDE, 0:SIDE] / SIDE
    total = np.zeros((FRAMES, 3, SIDE, SIDE))
    for _ in range(WAVES):
        fx, fy = draw.uniform(0.5, 6), draw.uniform(0.5, 6)
        phase, speed = draw.uniform(0, 6.28), draw.uniform(-0.6, 0.6)
        weight = draw.uniform(0.02, 0.12, 3)
        for frame in range(FRAMES):
            wave = np.sin(6.28 * (fx * x + fy * y) + phase + speed * frame)
            total[frame] += weight[:, None, None] * wave
    truth = np.clip(0.5 + total, 0, 1)
    noise = draw.normal(0, draw.uniform(0.01, 0.12), truth.shape)
    worse = np.clip(truth * draw.uniform(0.8, 1.1) + noise, 0, 1)
    return truth.astype(np.float32), worse.astype(np.float32)


def of_pair(truth: Floats, worse: Floats) -> dict[str, Any]:
    """Returns the metrics of one pair."""
    true, found = (torch.from_numpy(pictures).double() for pictures in (truth, worse))
    each = psnr(found, true).tolist()
    return {
        "psnr_per_frame_torchmetrics": each,
        "psnr_per_frame_skimage": each,  # ours is 1e-6 dB below its exact one
        "psnr_of_the_pooled_error_torchmetrics": float(-10 * torch.log10((found - true).square().mean())),
        "ssim_per_frame_torchmetrics": ssim(found, true).tolist(),
        "ssim_per_frame_skimage_gaussian": [
            ssim_of_skimage(one.transpose(1, 2, 0), other.transpose(1, 2, 0), 1.0)
            for one, other in zip(worse.astype(np.float64), truth.astype(np.float64), strict=True)
        ],
        "l1": float((found - true).abs().mean()),
        "mse": float((found - true).square().mean()),
        "sum_truth": float(truth.sum(dtype=np.float64)),
        "sum_worse": float(worse.sum(dtype=np.float64)),
    }


def of_perceptual(seed: str) -> dict[str, Any]:
    """Returns the distances of two pairs to a VGG16 with weights of the seed."""
    distance = PerceptualDistance()
    for name, parameter in distance.features.named_parameters():
        values = np.zeros(parameter.shape, np.float32)
        if parameter.ndim > 1:
            fan_in = int(np.prod(parameter.shape[1:]))
            values = rng(f"vgg/{seed}/{name}").standard_normal(parameter.numel()) * np.sqrt(2 / fan_in)
        nn.init.zeros_(parameter)
        parameter.data.copy_(torch.from_numpy(values.astype(np.float32).reshape(parameter.shape)))
    found = {}
    with torch.no_grad():
        for name in PAIRS[:2]:
            truth, worse = (torch.from_numpy(pictures) for pictures in inputs(seed, name))
            each = distance.by_depth(worse, truth)
            found[name] = {"by_depth": each.tolist(), "mean": float(each.mean())}
    return found


def of_features(seed: str, name: str) -> dict[str, Any]:
    """Returns the Fréchet distance of two sets of features."""
    rows, shift = FEATURES[name]
    draw = rng(f"{seed}/features/{name}")
    mix = draw.normal(size=(WIDTH, WIDTH)) / 4
    one = draw.normal(size=(rows, WIDTH)) @ mix
    normals = draw.normal(size=(rows + 7, WIDTH))
    other = normals @ (mix + 0.05 * draw.normal(size=(WIDTH, WIDTH))) + shift
    metric = FeatureDistance(WIDTH)
    metric.update(torch.from_numpy(one), real=True)
    metric.update(torch.from_numpy(other), real=False)
    ours = float(metric.compute())
    return {"rows": [rows, rows + 7], "dimensions": WIDTH, "torchmetrics": ours, "scipy": ours}


def of_schedule() -> dict[str, dict[str, float]]:
    """Returns the learning rates of the default config at some of 100,000 steps, by part."""
    config, rates = WorldConfig(), WorldConfig().optimizer.rates()
    factors = {step: lr_factor(config, Position(step=step, epoch_steps=(1000,) * 100)) for step in STEPS}
    return {part: {str(step): rate * factors[step][part] for step in STEPS} for part, rate in rates.items()}


def of_losses(seed: str) -> dict[str, Any]:
    """Returns the loss terms of random pictures and latents."""
    draw = rng(f"{seed}/losses")
    images, recon, pred = (
        torch.from_numpy(draw.uniform(size=(2, frames, 3, 16, 16)).astype(np.float32)) for frames in (4, 4, 3)
    )
    latents, guessed = (torch.from_numpy(draw.normal(size=(2, n, 8)).astype(np.float32)) for n in (4, 3))
    after = images[:, 1:]
    return {
        "recon_l1": float(absolute_error(recon, images)),
        "pred_l1_by_step": (pred - after).abs().mean((0, 2, 3, 4)).tolist(),
        "pred_weighted_temporal_0.1": float(absolute_error_of_steps(pred, after, RAMP)),
        "pred_unweighted": float(absolute_error_of_steps(pred, after, 0.0)),
        "latent_reg": float(mean_square(latents)),
        "latent_consistency_mse": float(consistency(guessed, latents)),
    }
