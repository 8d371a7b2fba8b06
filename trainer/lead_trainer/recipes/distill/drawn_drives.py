"""Made-up drives: constant turn rate and acceleration, so that a drive's past determines its future."""

import numpy as np

from lead_trainer.recipes.distill.ingest.ego_history import Motion, ego_history
from lead_trainer.recipes.distill.ingest.frame_files import Clip
from lead_trainer.recipes.distill.ingest.label_files import History

T0_US = 5_100_000
_RATE_US = 50_000


def drive(seed: int, seconds: float = 6.0) -> Motion:
    """Returns the motion of one drive from time 0, at 20 Hz, in a frame that neither starts nor heads with the car."""
    stream = np.random.default_rng(seed)
    speed, pull, turn = stream.uniform(2.0, 14.0), stream.uniform(-0.8, 0.8), stream.uniform(-0.25, 0.25)
    times = np.arange(0, round(seconds * 1e6) + 1, _RATE_US)
    seconds_in = times / 1e6
    yaw = stream.uniform(-np.pi, np.pi) + turn * seconds_in
    velocity = np.maximum(speed + pull * seconds_in, 0.0)[:, None] * np.stack([np.cos(yaw), np.sin(yaw)], -1)
    moved = np.cumsum(0.5 * (velocity[1:] + velocity[:-1]) * (_RATE_US / 1e6), 0)
    xy = stream.uniform(-500, 500, 2) + np.concatenate([np.zeros((1, 2)), moved])
    half = 0.5 * yaw
    zero = np.zeros_like(half)
    return Motion(times, np.concatenate([xy, zero[:, None]], 1), np.stack([zero, zero, np.sin(half), np.cos(half)], -1))


def driven_history(seed: int) -> History:
    """Returns the past of one drive at its t0."""
    return ego_history(drive(seed), Clip("drive", T0_US))
