"""All randomness of training as a pure function of (seed, epoch, step, rank).

The generators are re-seeded before every step, so a resumed run draws the same dropout masks as an uninterrupted one
and no generator state has to be part of a checkpoint. Called by `worker` once and by `loop` before each step.
"""

import hashlib
import os
import random

import numpy as np
import torch


def derived_seed(*parts: int | str) -> int:
    """Returns a 63-bit seed that depends on every part, the same on every machine."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def seed_process(seed: int) -> None:
    """Seeds every global generator; models are initialised from this state, so all ranks build the same one."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def seed_step(seed: int, epoch: int, step_in_epoch: int, rank: int) -> None:
    """Seeds the generators that a forward pass may draw from, for one step of one rank."""
    value = derived_seed("step", seed, epoch, step_in_epoch, rank)
    random.seed(value)
    np.random.seed(value % 2**32)
    torch.manual_seed(value)


def fix_algorithms(deterministic: bool) -> None:
    """Chooses between repeatable and fastest kernels; on CPU they are repeatable either way."""
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts; without it GEMMs vary
    torch.use_deterministic_algorithms(deterministic, warn_only=True)
    torch.backends.cudnn.deterministic = deterministic
    torch.backends.cudnn.benchmark = not deterministic
    torch.backends.cuda.matmul.allow_tf32 = not deterministic
    torch.backends.cudnn.allow_tf32 = not deterministic
