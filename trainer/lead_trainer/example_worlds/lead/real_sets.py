"""Small trees in the documented formats of NavSim's feature cache and of Waymo-E2E as LEAD unpacks it.

The content is made up (a straight drive past parked cars), the files are the real ones: keys, types, shapes,
compression. Written for tests and trials; see `prepare_navsim` and `prepare_waymo` for the formats.
"""

import gzip
import json
import pickle
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import torch

AGENTS = 30
HORIZON = 8  # poses of NavSim's trajectory, half a second apart
PAST, FUTURE = 16, 20  # samples of Waymo at 4 Hz
STRAIGHT = 1


def write_navsim_tree(
    root: Path, logs: int = 2, tokens: int = 6, size: tuple[int, int] = (1080 // 4, 7680 // 4)
) -> None:
    """Writes `<log>/<token>/transfuser_{feature,target}.gz`; `size` is the stitched picture's height and width."""
    random = np.random.default_rng(0)
    for log in range(logs):
        for token in range(tokens):
            folder = root / f"2021.05.12.22.00.{log:02d}_veh-35_00100_00200" / f"{log * 4096 + token * 17:016x}"
            folder.mkdir(parents=True)
            speed, turn = float(random.uniform(1, 12)), float(random.uniform(-0.05, 0.05))
            status = torch.tensor([0, 1, 0, 0, speed, 0, 0.5, -0.1], dtype=torch.float32)
            feature = {"camera_feature": _jpeg(random, size), "status_feature": status}
            _write(folder / "transfuser_feature.gz", feature)
            _write(folder / "transfuser_target.gz", _target(random, speed, turn))


def _target(random: np.random.Generator, speed: float, turn: float) -> dict[str, torch.Tensor]:
    times = np.arange(1, HORIZON + 1) / 2
    heading = turn * times
    poses = np.stack([speed * times, speed * times * heading / 2, heading], axis=1)
    count = int(random.integers(0, AGENTS))
    states = np.zeros((AGENTS, 5), np.float32)
    states[:count] = np.stack(
        [
            random.uniform(-40, 40, count),
            random.uniform(-40, 40, count),
            random.uniform(-3, 3, count),
            random.uniform(3.5, 5.5, count),
            random.uniform(1.6, 2.2, count),
        ],
        axis=1,
    )
    grid = np.zeros((256, 256), np.float32)
    grid[:, 108:148] = 1  # road
    grid[:, 127:129] = 3  # centre line
    return {
        "trajectory": torch.tensor(poses, dtype=torch.float32),
        "agent_states": torch.tensor(states),
        "agent_labels": torch.arange(AGENTS) < count,
        "bev_semantic_map": torch.tensor(grid),
    }


def write_waymo_tree(root: Path, sequences: int = 2, frames: int = 10, size: tuple[int, int] = (360, 972)) -> None:
    """Writes `<sequence>/images/<frame>.jpg` and `<sequence>/metas/<frame>.json.gz`."""
    random = np.random.default_rng(1)
    for sequence in range(sequences):
        folder = root / f"{sequence:032x}"
        speed = float(random.uniform(2, 15))
        for name in ("images", "metas"):
            (folder / name).mkdir(parents=True)
        for frame in range(frames):
            (folder / "images" / f"{frame:04d}.jpg").write_bytes(_jpeg(random, size).tobytes())
            past, future = np.arange(-PAST + 1, 1) / 4, np.arange(1, FUTURE + 1) / 4
            document = {
                "past": {
                    "x": (speed * past).tolist(),
                    "y": (0.1 * past).tolist(),
                    "vx": [speed] * PAST,
                    "vy": [0.1] * PAST,
                },
                "command": STRAIGHT,
                "prediction": {"x": (speed * future).tolist(), "y": (0.1 * future).tolist()},
            }
            data = gzip.compress(json.dumps(document).encode(), mtime=0)
            (folder / "metas" / f"{frame:04d}.json.gz").write_bytes(data)


def _jpeg(random: np.random.Generator, size: tuple[int, int]) -> npt.NDArray[np.uint8]:
    height, width = size
    coarse = random.integers(0, 255, (max(2, height // 30), max(2, width // 30), 3), dtype=np.uint8)
    picture = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_LINEAR)
    return np.asarray(cv2.imencode(".jpg", picture, [int(cv2.IMWRITE_JPEG_QUALITY), 80])[1], np.uint8)


def _write(path: Path, content: object) -> None:
    path.write_bytes(gzip.compress(pickle.dumps(content), mtime=0))
